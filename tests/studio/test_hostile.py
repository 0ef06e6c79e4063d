"""Whatever the studio is sent, it answers with a sentence and lives on."""

import json
import math

import pytest
import torch
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.studio.asking import ask, first_image, refused
from torchcaps.analysis.points import make_points
from torchcaps.apps.studio import rooms
from torchcaps.apps.studio.networks import Network
from torchcaps.apps.studio.rooms import DigitAsked, digit_room
from torchcaps.apps.studio.server import create_app

BLOBS = make_points("blobs", 0)
SHIPPED = "mnist-efficient"


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"", "application/json", 422),
        (b"{", "application/json", 422),
        (b"[" * 100_000, "application/json", 400),
        (b'"\xff\xfe"', "application/json", 400),
        (b"[1, 2]", "application/json", 422),
        (b"null", "application/json", 422),
        (b"{}", "text/plain", 422),
        (b"network=mnist", "application/x-www-form-urlencoded", 422),
        (b"--x\r\n\r\n--x--", "multipart/form-data; boundary=x", 422),
    ],
)
def test_what_is_no_question_is_refused(client, content, kind, status):
    for path in ("clusters", "digit", "pose", "tree", "votes"):
        answer = client.post(f"/api/{path}", content=content, headers={"content-type": kind})
        assert refused(answer, status).startswith("studio: expected ")


def test_unknown_pages_and_methods_are_refused_in_one_sentence(client):
    assert refused(client.get("/api/nothing"), 404).startswith("studio: expected a page or question that it knows")
    assert refused(client.get("/docs"), 404)
    assert refused(client.get("/api/points/", follow_redirects=False), 404)
    assert refused(client.get("/openapi.json"), 404)
    assert refused(client.get("/api/clusters"), 405).startswith("studio: expected another method, got GET /api/clus")
    assert refused(client.delete("/api/hello"), 405)


def test_a_failure_of_ours_is_told_and_the_server_lives_on(capsys):
    def load():
        raise RuntimeError("the disk is gone")

    network = Network("one", "one", torch.nn.Module(), "cnn", ("a",), None, load)
    network.model.image_shape, network.model.decoder = (1, 4, 4), None
    client = TestClient(create_app([network]), base_url="http://localhost", raise_server_exceptions=False)
    said = refused(client.get("/api/examples?network=one"), 500)
    assert said == "studio: expected to have an answer, got RuntimeError. See the terminal for details."
    assert "the disk is gone" in capsys.readouterr().err
    assert client.get("/api/hello").status_code == 200


def test_a_question_of_many_fields_is_refused_at_once(client):
    many = {f"field {number}": 0 for number in range(100_000)}
    said = refused(client.post("/api/digit", json=many))  # a list of what is wrong with each took 150 MB
    assert said == "studio: expected at most 20 in the question, got 100000. Correct it."


def test_answers_that_json_does_not_know_are_refused(client, monkeypatch):
    monkeypatch.setattr(rooms, "points_room", lambda name, seed: {"points": [[math.nan, 0]]})
    said = refused(client.get("/api/points"))
    assert said.startswith("studio: expected numbers that stay finite, got some that do not.")


numbers = st.integers() | st.floats() | st.sampled_from([10**400, -1, 0, 255, 256])
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
BLANK = [[0] * 28] * 28
QUESTIONS = {
    "clusters": {"points": [[0, 0], [1, 1], [2, 0]], "routing": "em", "options": {}, "parents": 2, "iterations": 2},
    "digit": {"network": SHIPPED, "pixels": BLANK},
    "pose": {"network": SHIPPED, "label": 1, "pose": [0] * 16},
    "tree": {"network": "color", "pixels": [[[0] * 12] * 16] * 3, "label": None},
    "votes": {"network": "placed", "pixels": [[0] * 20] * 20, "label": None},
}


@settings(max_examples=150)
@given(room=st.sampled_from(sorted(QUESTIONS)), data=st.data())
def test_a_question_with_anything_in_a_field_never_breaks_the_server(client, room, data):
    question = QUESTIONS[room]
    word = data.draw(st.sampled_from(sorted(question)))
    text = json.dumps(question | {word: data.draw(anything)})
    answer = client.post(f"/api/{room}", content=text, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 422), answer.text
    if answer.status_code != 200:
        assert set(answer.json()) == {"error"}


@settings(max_examples=100)
@given(
    room=st.sampled_from(sorted(QUESTIONS)), content=st.binary(max_size=64) | anything.map(json.dumps).map(str.encode)
)
def test_any_bytes_never_break_the_server(client, room, content):
    answer = client.post(f"/api/{room}", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422), answer.text
    assert set(answer.json()) == {"error"}


def test_after_all_that_the_server_answers_as_before(client, networks):
    _, pixels = first_image(networks[SHIPPED])
    told = ask(client, "digit", network=SHIPPED, pixels=pixels)
    own = digit_room(networks[SHIPPED], DigitAsked(network=SHIPPED, pixels=pixels))
    assert {**told, "milliseconds": 0} == {**own, "milliseconds": 0}
