"""The campaign `sanitizers` in small, and that it sees the faults for which it looks."""

from types import SimpleNamespace

import pytest
import torch
from torture import rooms, sanitizers
from torture.result import Result

from torchcaps.votes.native.build import SOURCE, Geometry

ODD = sanitizers.Library(Geometry(1, 5, 6), torch.float32, 16)


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
    text = SOURCE.read_text()
    assert old in text
    (folder / "changed.c").write_text(text.replace(old, new))
    monkeypatch.setattr(sanitizers, "SOURCE", folder / "changed.c")


@memory
def test_random_calls_stay_within_memory_and_give_the_numbers_of_numpy(watched):
    result = Result("sanitizers", "calls")
    sanitizers.try_calls(ODD, 60, 0, result, watched)
    assert not result.faults, result.faults[0]
    assert result.outcomes == {"sums": 20, "inner": 20, "gradients": 20}


@pytest.mark.slow
@memory
def test_a_number_read_beyond_the_end_is_seen(watched, monkeypatch):
    changed(monkeypatch, watched, "block * LANES > n - LANES ? n - LANES : block * LANES", "block * LANES")
    result = Result("sanitizers", "calls")
    sanitizers.try_calls(ODD, 60, 0, result, watched)
    assert "AddressSanitizer: heap-buffer-overflow" in result.faults[0]


@pytest.mark.slow
@memory
def test_a_wrong_number_is_seen(watched, monkeypatch):
    changed(monkeypatch, watched, "total = pair[0][h] *", "total = -pair[0][h] *")
    result = Result("sanitizers", "calls")
    sanitizers.try_calls(ODD, 3, 0, result, watched)
    assert result.outcomes == {"sums": 1, "inner": 1}
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
    changed(monkeypatch, watched, "if (counted <= 0) STORE", "if (counted <= LANES) STORE")
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
