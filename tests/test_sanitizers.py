"""The campaign `sanitizers` in small, and that it sees the faults for which it looks."""

from types import SimpleNamespace

import pytest
import torch
from torture import rooms, sanitizers
from torture.result import Result

from torchcaps.votes.native.build import SOURCES, Geometry

ODD = sanitizers.Library(Geometry(1, 5, 6), torch.float32, 8, 16)
SOFTMAXES = ("softmax", "softmax_back", "grid_softmax", "grid_softmax_back")
NAMES = ("sums", "moments", "inner", "gradients", *SOFTMAXES, "weigh_back", "product")


@pytest.fixture
def watched(tmp_path, request):
    """Where the sanitizer of the test can be had."""
    reason = sanitizers.missing(request.param, tmp_path)
    if reason:
        pytest.skip(reason)
    return tmp_path


def memory(test):
    return pytest.mark.parametrize("watched", [sanitizers.MEMORY], indirect=True, ids=["memory"])(test)


def threads(test):
    return pytest.mark.parametrize("watched", [sanitizers.THREADS], indirect=True, ids=["threads"])(test)


def changed(monkeypatch, folder, old, new):
    """The functions with a fault in them."""
    texts = {source.name: source.read_text() for source in SOURCES}
    assert sum(old in text for text in texts.values()) == 1
    for name, text in texts.items():
        (folder / name).write_text(text.replace(old, new))
    monkeypatch.setattr(sanitizers, "SOURCE", folder / sanitizers.SOURCE.name)


@memory
def test_random_calls_stay_within_memory_and_give_the_numbers_of_numpy(watched):
    result = Result("sanitizers", "calls")
    sanitizers.try_calls(ODD, 200, 0, result, watched)
    assert not result.faults, result.faults[0]
    assert result.outcomes == dict.fromkeys(NAMES, 20)


@pytest.mark.slow
@memory
@pytest.mark.parametrize(
    ("old", "new"),
    [("in pair = x.at", "in pair = x.at + LANES"), ("size at = row * parents", "size at = (row + 1) * parents")],
    ids=["pairs", "scores"],
)
def test_a_number_read_beyond_the_end_is_seen(watched, monkeypatch, old, new):
    changed(monkeypatch, watched, old, new)
    result = Result("sanitizers", "calls")
    sanitizers.try_calls(ODD, 80, 0, result, watched)
    assert "AddressSanitizer: heap-buffer-overflow" in result.faults[0]


@pytest.mark.slow
@memory
@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        ("total = pair[0][h] *", "total = -pair[0][h] *", "gradients"),
        ("(mean) * (first) > NEAR * (left)", "0", "moments"),  # whoever needs a second reading gets none
        ("i % n.types *", "0 *", "sums"),
        ("total[m][n] += left[m]", "total[m][n] -= left[m]", "product"),
        ("total == 0 ? 0 : 1 / total", "1 / total", "softmax"),  # children that nobody may take
        (
            "to[l] += new)\n            }\n            inverses",
            "to[l] = new)\n            }\n            inverses",
            "grid_softmax",
        ),
    ],
)
def test_a_wrong_number_is_seen(watched, monkeypatch, old, new, seen):
    changed(monkeypatch, watched, old, new)
    result = Result("sanitizers", "calls")
    sanitizers.try_calls(ODD, 160, 0, result, watched)
    assert NAMES[sum(result.outcomes.values()) % len(NAMES)] == seen
    assert "wrong numbers" in result.faults[0]


@threads
def test_threads_never_write_the_same_place(watched):
    result = Result("sanitizers", "rounds")
    sanitizers.try_threads(ODD, 30, 0, result, watched)
    assert not result.faults, result.faults[0]
    assert result.outcomes == {"round": 30}


@pytest.mark.slow
@threads
def test_threads_that_write_the_same_place_are_seen(watched, monkeypatch):
    changed(monkeypatch, watched, "dw + (t * parents + j) * INNER * COLS);", "dw + j * INNER * COLS);")
    result = Result("sanitizers", "rounds")
    sanitizers.try_threads(ODD, 30, 0, result, watched)
    assert "ThreadSanitizer: data race" in result.faults[0]


def test_no_buffer_is_handed_out_twice_at_a_time():
    result = rooms.try_rooms(2000, 0)
    assert not result.faults, result.faults[0]
    assert result.outcomes["unchanged"] >= 2000


def test_a_buffer_that_is_handed_out_twice_is_seen():
    result, buffer = Result("sanitizers", "buffers"), torch.zeros(10)
    claims = rooms.Claims(result)
    with claims.held(buffer), claims.held(buffer[5:]):
        pass
    assert result.faults == ["20 bytes were handed out twice", "somebody wrote into it"]


def test_one_room_for_all_threads_is_seen(monkeypatch):
    monkeypatch.setattr("torchcaps.votes.buffers._current", SimpleNamespace())
    assert rooms.try_rooms(50_000, 0).faults


def test_layers_in_several_threads_compute_what_they_compute_in_one():
    result = rooms.try_layers(40, 0)
    assert not result.faults, result.faults[0]
    assert result.outcomes == {"the same bits": 40}


@pytest.mark.usefixtures("_forgotten")
def test_a_compiler_without_sanitizers_is_told(monkeypatch):
    monkeypatch.setenv("CC", "false")
    memory, threads, *_ = sanitizers.run(20)
    assert (memory.cases, threads.cases, memory.faults, threads.faults) == (0, 0, [], [])
    assert "skipped, as the compiler has no -fsanitize=thread here" in next(iter(threads.outcomes))
