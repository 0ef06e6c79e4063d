"""The campaign `torture server` in small, and what it found."""

import gc

import pytest
from torture import server


@pytest.mark.slow
def test_the_server_outlives_a_small_campaign():
    results = server.run(60, seed=1, slow=30, burst=20)
    faults = [fault for result in results for fault in result.faults]
    assert not faults, faults[0]
    assert sum(result.cases for result in results if not result.what.startswith(("slow", "20", "after"))) == 60
    assert results[-1].outcomes["the same answer"] == 1
    assert results[-1].outcomes["MB at most"] < server.MEMORY


@pytest.mark.parametrize("kind", server.KINDS, ids=lambda kind: kind.__name__)
def test_requests_of_a_campaign_are_the_same_for_a_seed(kind):
    assert kind(server.random.Random(3)) == kind(server.random.Random(3))


def test_an_answer_of_500_is_a_fault():
    class Broken:
        def send(self, content, seconds=60):
            return 500

    results = server.try_requests(Broken(), 20, 0)
    assert sum(len(result.faults) for result in results) == 20


def test_a_refused_body_is_let_go_at_once(client):
    content = {"network": "mnist-efficient", "pixels": [0] * 12_345}
    gc.collect()
    gc.disable()
    try:
        assert client.post("/api/digit", json=content).status_code == 422
        found = [each for each in gc.get_objects() if type(each) is list and len(each) == 12_345]
    finally:
        gc.enable()
    assert [each is content["pixels"] for each in found] == [True]
