"""What the studio answers is what the library says; what it cannot answer gets a sentence."""

import json
import math
import re
from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from tests.studio.asking import ask, first_image, refused
from torchcaps.analysis.clusters import iterative, trace_clusters
from torchcaps.analysis.lastlayer import last_layer
from torchcaps.analysis.points import POINTS, make_points
from torchcaps.analysis.reconstruct import draw_classes
from torchcaps.analysis.trees import routing_tree, trace_image
from torchcaps.analysis.votes import vote_points
from torchcaps.apps.studio.rooms import examples_room
from torchcaps.apps.studio.routings import describe_routings, offered, options_of
from torchcaps.data import PairSet, load_dataset
from torchcaps.routing import ROUTINGS, make_routing
from torchcaps.routing.checks import Range

BLOBS = make_points("blobs", 0)
SHIPPED = "mnist-efficient"


# Hello


def test_hello_tells_of_networks_routings_and_points(client, networks):
    hello = client.get("/api/hello").json()
    told = {network["name"]: network for network in hello["networks"]}
    assert list(told) == list(networks)
    shipped = told[SHIPPED]
    assert shipped["classes"] == list("0123456789")
    assert shipped["shape"] == [1, 28, 28]
    assert (shipped["decoder"], shipped["model"], shipped["placed"]) == (True, "efficient", False)
    assert shipped["accuracy"] == 0.9975
    assert (told["placed"]["placed"], told["placed"]["routing"], told["placed"]["iterations"]) == (True, "em", 2)
    assert (told["color"]["routing"], told["color"]["shape"]) == ("dynamic", [3, 16, 12])
    assert (told["plain"]["routing"], told["plain"]["iterations"], told["plain"]["placed"]) == (None, None, False)
    assert [routing["name"] for routing in hello["routings"]] == list(offered())
    assert hello["points"] == list(POINTS)


def test_every_offered_option_starts_at_the_default_of_its_routing(client):
    for told in describe_routings():
        sizes = {"out_capsules": 2} if told["name"] in ("em", "heinsen", "variational") else {}
        made = make_routing(told["name"], **sizes)
        assert told["kind"] == ("distance" if made.parents_are_means else "direction")
        assert told["title"].endswith(".")
        for option in told["options"]:
            assert float(option["default"] == getattr(made, option["name"])), option
            if option["type"] == "number":
                assert option["low"] <= option["default"] <= option["high"]
            elif option["type"] == "choice":
                assert option["default"] in option["choices"]


# Clusters


def test_points_are_those_of_the_library(client):
    told = client.get("/api/points?name=ellipses&seed=3").json()
    drawn = make_points("ellipses", 3)
    assert told == {"points": drawn.points.tolist(), "parents": drawn.parents}
    assert client.get("/api/points").json()["points"] == BLOBS.points.tolist()


@pytest.mark.parametrize("routing", offered())
def test_clusters_equal_the_trace_of_the_library(client, routing):
    points = BLOBS.points.tolist()
    options = {"em": {"variant": 3, "damping": 0.5}, "kmeans": {"distance": "inner", "sharpness": 2}}.get(routing, {})
    told = ask(client, "clusters", points=points, routing=routing, options=options, parents=4, iterations=6, seed=7)
    trace = trace_clusters(torch.tensor(points, dtype=torch.float64), routing, 4, 6, seed=7, **options)
    assert told == json.loads(json.dumps(trace.as_dict()))
    assert len(told["steps"]) == 6


def test_the_page_has_words_for_every_routing(client):
    page = client.get("/").text
    assert [name for name in offered() if f'<template id="about-{name}">' not in page] == []
    assert set(iterative()) - set(offered()) == {"inverted"}  # of two dimensions a layer norm leaves two points


def test_a_routing_of_ones_own_has_its_controls(client, monkeypatch):
    class Mine(ROUTINGS["kmeans"]):
        """Clusters as k-means does, a share at a time."""

        controls: ClassVar = {"haste": Range(0.0, 1.0, "How far a center moves.")}

        def __init__(self, iterations=3, *, haste=0.5, **options):
            super().__init__(iterations, **options)
            self.haste = haste

    monkeypatch.setitem(ROUTINGS.data, "mine", Mine)
    (told,) = [each for each in describe_routings() if each["name"] == "mine"]
    found = {each["name"]: each for each in told["options"]}
    assert list(found) == ["haste", "distance", "sharpness", "leaky", "hard"]
    assert found["haste"]["default"] == 0.5
    assert found["haste"]["text"] == "How far a center moves."
    asked = {"points": BLOBS.points.tolist(), "routing": "mine"}
    assert len(ask(client, "clusters", **asked, options={"haste": 0.2}, iterations=2)["steps"]) == 2
    answer = client.post("/api/clusters", json={**asked, "options": {"haste": 2}})
    assert "haste to be a number from 0 to 1" in answer.text


def test_choices_may_come_as_words(client):
    body = {"points": BLOBS.points.tolist(), "routing": "em"}
    assert ask(client, "clusters", **body, options={"variant": "1"}) == ask(
        client, "clusters", **body, options={"variant": 1}
    )


@pytest.mark.parametrize("routing", offered())
@pytest.mark.parametrize("end", ["low", "high"])
def test_every_option_works_at_both_of_its_ends(client, routing, end):
    for word, told in options_of(routing).items():
        value = told[end] if told["type"] == "number" else told["choices"][-1] if "choices" in told else True
        points = [[0.0, 0.0], [0.0, 0.0], [1000.0, -1000.0], [1e-30, 0.0]]
        options = {word: value} | ({"covariance": "fixed"} if word == "variance" else {})
        ask(client, "clusters", points=points, routing=routing, options=options, parents=4, iterations=30)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"points": [[0, 0]]}, "studio: expected at least 2 in points, got 1. Correct it."),
        ({"points": [[0, 0]] * 401}, "studio: expected at most 400 in points, got 401. Correct it."),
        ({"points": [[0, 0], [0, 0, 0]]}, "studio: expected at most 2 in points.1, got 3. Correct it."),
        ({"points": [[0, 0], [0, "1"]]}, "studio: expected points.1.1 to be a number, got '1'"),
        ({"points": [[0, 0], [0, True]]}, "studio: expected points.1.1 to be a number, got True"),
        ({"points": [[0, 0], [0, 1e9]]}, "studio: expected points.1.1 to be at most 1000, got 1000000000.0"),
        ({"points": "many"}, "studio: expected points to be a list, got 'many'"),
        ({"parents": 9}, "studio: expected parents to be at most 8, got 9"),
        ({"parents": 2.5}, "studio: expected parents to be a whole number, got 2.5"),
        ({"parents": 5, "points": [[0, 0], [1, 1]]}, "trace_clusters: expected at least 5 points"),
        ({"iterations": 0}, "studio: expected iterations to be at least 1, got 0"),
        ({"iterations": 31}, "studio: expected iterations to be at most 30, got 31"),
        ({"seed": -1}, "studio: expected seed to be at least 0, got -1"),
        ({"routing": "magic"}, "clusters: expected routing to be one of 'dynamic', "),
        ({"routing": "attention"}, "clusters: expected routing to be one of 'dynamic', "),
        ({"options": {"start": 1}}, "em: expected options among variant, inverse_temperature"),
        ({"options": {"variant": 5}}, "em: expected variant to be one of 1, 2, 3, 4, got 5. Choose such a value."),
        ({"options": {"damping": True}}, "em: expected damping to be a number from 0 to 0.9, got True."),
        ({"options": {"damping": 2}}, "em: expected damping to be a number from 0 to 0.9, got 2."),
        ({"options": {"hard": 1}}, "em: expected hard to be true or false, got 1."),
        ({"options": {"damping": [1]}}, "em: expected damping to be a number from 0 to 0.9, got [1]."),
        ({"more": 1}, "studio: expected nothing beside what it knows, got more. Drop it."),
    ],
)
def test_clusters_refuse_in_one_sentence(client, change, sentence):
    body = {"points": BLOBS.points.tolist(), "routing": "em", "parents": 3, "iterations": 3, "seed": 0}
    assert refused(client.post("/api/clusters", json=body | change)).startswith(sentence)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400, "9" * 5000])
def test_numbers_that_are_none_are_refused(client, word):
    text = f'{{"points": [[0, 0], [1, {word}]], "routing": "em"}}'
    answer = client.post("/api/clusters", content=text, headers={"content-type": "application/json"})
    assert refused(answer, 400 if len(word) > 4300 else 422).startswith("studio: expected ")
    text = f'{{"points": [[0, 0], [1, 1], [2, 2]], "routing": "em", "options": {{"damping": {word}}}}}'
    answer = client.post("/api/clusters", content=text, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)


# Digits


@pytest.mark.parametrize("name", [SHIPPED, "color"])
def test_digit_is_what_the_model_says(client, networks, name):
    network = networks[name]
    image, pixels = first_image(network)
    told = ask(client, "digit", network=name, pixels=pixels)
    with torch.no_grad():
        capsules = network.model(image[None])
    winner = int(capsules.activations[0].argmax())
    assert told["activations"] == pytest.approx(capsules.activations[0].tolist(), abs=1e-6)
    assert told["winner"] == winner
    assert told["pose"] == pytest.approx(capsules.poses[0, winner].tolist(), abs=1e-6)
    drawn = draw_classes(network.model, image, [winner]).drawn[0]
    assert torch.tensor(told["drawing"]).view(drawn.shape).float() / 255 == pytest.approx(drawn.numpy(), abs=0.5 / 255)
    assert told["low"] == -told["high"] <= -0.75
    assert max(map(abs, told["pose"])) < told["high"]
    assert told["milliseconds"] > 0


def test_shipped_network_reads_its_examples(client):
    told = client.get(f"/api/examples?network={SHIPPED}&count=30").json()["examples"]
    answers = [ask(client, "digit", network=SHIPPED, pixels=each["pixels"])["winner"] for each in told]
    assert [str(answer) for answer in answers] == [each["label"] for each in told]
    assert [each["label"] for each in told] == [digit for digit in "0123456789" for _ in range(3)]


def test_examples_of_pairs_name_both(networks):
    pairs = PairSet(load_dataset("mnist-5k").test, 4, seed=0)
    told = examples_room(replace(networks[SHIPPED], load=lambda: pairs), 3)["examples"]
    assert len(told) == 3
    assert all(re.fullmatch(r"\d and \d", each["label"]) for each in told)


def test_at_most_as_many_examples_as_there_are(client):
    assert len(client.get("/api/examples?network=color").json()["examples"]) == 6


def test_a_network_without_a_decoder_draws_nothing(client, networks):
    _, pixels = first_image(networks["plain"])
    told = ask(client, "digit", network="plain", pixels=pixels)
    assert told["drawing"] is None
    assert len(told["pose"]) == 1
    answer = client.post("/api/pose", json={"network": "plain", "label": 0, "pose": [0]})
    assert refused(answer).startswith("pose: expected a model with a decoder, got none.")


def test_the_pose_of_a_digit_draws_the_digit_again_and_another_pose_another(client, networks):
    _, pixels = first_image(networks[SHIPPED])
    told = ask(client, "digit", network=SHIPPED, pixels=pixels)
    body = {"network": SHIPPED, "label": told["winner"]}
    assert ask(client, "pose", **body, pose=told["pose"]) == {"drawing": told["drawing"]}
    moved = [value + 0.25 for value in told["pose"]]
    assert ask(client, "pose", **body, pose=moved)["drawing"] != told["drawing"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"pixels": [[0] * 28] * 27}, f"studio: expected pixels (1, 28, 28) for {SHIPPED}, got (1, 27, 28). Send an"),
        ({"pixels": [[[0] * 28] * 28] * 3}, f"studio: expected pixels (1, 28, 28) for {SHIPPED}, got (3, 28, 28)."),
        ({"pixels": [[0] * 28] * 27 + [[0] * 27]}, f"studio: expected pixels (1, 28, 28) for {SHIPPED}, got rows of"),
        ({"pixels": [[0] * 28] * 27 + [[0] * 27 + [256]]}, "studio: expected pixels.27.27 to be at most 255"),
        ({"pixels": [[0] * 28] * 27 + [[0] * 27 + [-1]]}, "studio: expected pixels.27.27 to be at least 0"),
        ({"pixels": [[0] * 28] * 27 + [[0] * 27 + [None]]}, "studio: expected pixels.27.27 to be a number, got None"),
        ({"pixels": [[[0, "a"]]]}, "studio: expected pixels.0.0.1 to be a number, got 'a'. Correct it."),
        ({"pixels": []}, "studio: expected at least 1 in pixels, got 0."),
        ({"pixels": [[0] * 1025]}, "studio: expected at most 1024 in pixels.0, got 1025."),
        ({"pixels": 7}, "studio: expected pixels to be a list, got 7"),
        ({"pixels": "../../etc/passwd"}, "studio: expected pixels to be a list, got '../../etc/passwd'"),
        ({"network": "other"}, f"studio: expected network to be one of '{SHIPPED}', "),
        ({"network": 3}, "studio: expected network to be a word, got 3"),
        ({"network": "x" * 5000}, f"studio: expected network to be one of '{SHIPPED}', "),
    ],
)
def test_digit_refuses_in_one_sentence(client, change, sentence):
    body = {"network": SHIPPED, "pixels": [[0] * 28] * 28}
    said = refused(client.post("/api/digit", json=body | change))
    assert said.startswith(sentence)
    assert len(said) < 300


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"label": 10}, f"{SHIPPED}: expected a class from 0 to 9, got 10. Send the number of a class."),
        ({"label": -1}, "studio: expected label to be at least 0, got -1. Correct it."),
        ({"pose": [0] * 15}, f"pose: expected 16 numbers for {SHIPPED}, got 15. Send one for each dimension."),
        ({"pose": [0] * 15 + ["a"]}, "studio: expected pose.15 to be a number, got 'a'. Correct it."),
    ],
)
def test_pose_refuses_in_one_sentence(client, change, sentence):
    body = {"network": SHIPPED, "label": 3, "pose": [0] * 16}
    assert refused(client.post("/api/pose", json=body | change)) == sentence


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("examples?network=other", "studio: expected network to be one of "),
        ("examples", "studio: expected network, got none. Add it."),
        (f"examples?network={SHIPPED}&count=0", "studio: expected count to be at least 1, got '0'."),
        (f"examples?network={SHIPPED}&count=many", "studio: expected count to be a whole number, got 'many'."),
        ("points?name=stars", "make_points: expected points to be one of 'blobs', "),
        ("points?seed=-1", "studio: expected seed to be at least 0, got '-1'."),
        (f"points?seed={'9' * 5000}", "studio: expected seed to be a whole number"),
    ],
)
def test_queries_are_refused_in_one_sentence(client, query, sentence):
    assert refused(client.get(f"/api/{query}")).startswith(sentence)


# Trees and votes


@pytest.mark.parametrize(("name", "label"), [(SHIPPED, None), ("placed", None), ("placed", 2), ("color", 1)])
def test_tree_is_that_of_the_library(client, networks, name, label):
    network = networks[name]
    image, pixels = first_image(network)
    told = ask(client, "tree", network=name, pixels=pixels, label=label)
    traced = trace_image(network.model, image)
    tree = routing_tree(traced, None if label is None else [label])
    assert told["label"] == tree.roots[0]
    assert told["classes"] == pytest.approx(tree.activations.tolist(), abs=1e-6)
    assert told["iterations"] == len(traced.activations)
    assert [node["id"] for node in told["nodes"]] == list(range(len(tree.nodes)))
    assert [node["activation"] for node in told["nodes"]] == pytest.approx([node.activation for node in tree.nodes])
    for edge, known in zip(told["edges"], tree.edges, strict=True):
        assert (edge["child"], edge["parent"]) == (known.child, known.parent)
        assert edge["couplings"] == pytest.approx(known.couplings)
        assert edge["flow"] == pytest.approx(known.flow)
    kinds = {node["layer"]: node["kind"] for node in told["nodes"]}
    assert kinds[0] == "part"
    assert kinds[tree.layers - 1] == "class"
    assert {kinds[layer] for layer in range(1, tree.layers - 1)} <= {"middle"}
    (root,) = (node for node in told["nodes"] if node["kind"] == "class")
    assert root["name"] == network.classes[tree.roots[0]]
    into_parts = sum(edge.flow for edge in tree.edges if tree.nodes[edge.child].layer == 0)
    assert told["shown_share"] == pytest.approx(into_parts)
    assert 0 < told["shown_share"] <= 1 + 1e-6


def test_parts_of_a_tree_have_a_place_or_a_picture(client, networks):
    for name, placed in (("placed", True), (SHIPPED, False)):
        image, pixels = first_image(networks[name])
        nodes = ask(client, "tree", network=name, pixels=pixels)["nodes"]
        parts = [node for node in nodes if node["kind"] == "part"]
        for part in parts:
            assert (part["map"] is None) == placed
            assert (part["x"] is not None) == placed
            if placed:
                assert 0 <= part["x"] - part["width"] / 2 < part["x"] + part["width"] / 2 <= image.shape[-1]
                assert 0 <= part["y"] - part["height"] / 2 < part["y"] + part["height"] / 2 <= image.shape[-2]
            else:
                shape = torch.tensor(part["map"]).shape
                assert shape == image.shape[1:]
                assert max(map(max, part["map"])) == 255


def test_votes_are_those_of_the_library(client, networks):
    image, pixels = first_image(networks[SHIPPED])
    told = ask(client, "votes", network=SHIPPED, pixels=pixels)
    found = vote_points(last_layer(networks[SHIPPED].model, image))
    assert torch.tensor(told["points"], dtype=torch.float64) == pytest.approx(found.points.numpy(), abs=1e-4)
    assert told["parents"] == 3
    assert told["text"].startswith("What the 16 most active parts vote for ")
    ask(client, "clusters", points=told["points"], routing="kmeans", parents=told["parents"])


@pytest.mark.parametrize("room", ["tree", "votes"])
def test_a_plain_network_has_no_routing_to_show(client, networks, room):
    _, pixels = first_image(networks["plain"])
    said = refused(client.post(f"/api/{room}", json={"network": "plain", "pixels": pixels}))
    assert "got SmallCNN." in said


def test_an_empty_image_is_an_image(client, networks):
    for name, network in networks.items():
        _, height, width = shape = network.model.image_shape
        blank = [[0] * width] * height
        pixels = blank if shape[0] == 1 else [blank] * shape[0]
        told = ask(client, "digit", network=name, pixels=pixels)
        assert all(map(math.isfinite, told["activations"]))
        if name != "plain":
            ask(client, "tree", network=name, pixels=pixels)
            ask(client, "votes", network=name, pixels=pixels)
