"""The campaigns on strangers' runs and two writers, in small; and that what they watch for would be seen."""

import os
import random
import re
from pathlib import Path

import pytest
from torture import kill, links, odd, writers
from torture.watch import Monitor

SOURCE = Path(__file__).parents[1] / "src" / "torchcaps"


@pytest.mark.parametrize("act", ["read", "write", "make", "remove", "through a link"])
def test_the_monitor_sees_whatever_is_done(tmp_path, act):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_text("secret")
    (tmp_path / "link").symlink_to("outside/key")
    monitor = Monitor(outside)
    assert monitor.seen() == []
    (tmp_path / "beside").write_text("x")
    assert monitor.seen() == []
    {
        "read": (outside / "key").read_text,
        "write": lambda: (outside / "key").write_text("x"),
        "make": lambda: (outside / "new").mkdir(),
        "remove": (outside / "key").unlink,
        "through a link": (tmp_path / "link").read_text,
    }[act]()
    assert monitor.seen()
    monitor.close()


def test_prepared_runs_have_links_that_lead_out(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text("{}")
    seen = set()
    for number in range(40):
        run, outside, told = links.prepare(source, tmp_path / "scratch", random.Random(number))
        found = [path for path in run.rglob("*") if path.is_symlink()]
        assert told
        assert any(Path(os.path.realpath(path)).is_relative_to(outside) for path in found)
        seen |= {line.split(" -> ")[0] for line in told}
    assert len(seen) > 25


def test_files_of_a_run_are_reached_through_its_path():
    for path in SOURCE.rglob("*.py"):
        found = re.findall(r"\.folder / .*", path.read_text())
        assert not found, f"{path.name}: {found[0]}"


def test_what_no_writer_wrote_is_seen():
    content = writers._content(1, 2)
    assert writers._whole(content) is None
    assert writers._whole(content[:-10])
    assert writers._whole(content[:50] + writers._content(2, 2))


@pytest.mark.slow
def test_no_command_leaves_a_prepared_run(tmp_path):
    for result in links.run(3, seed=5):
        assert not result.faults, result.faults[0]


@pytest.mark.slow
def test_racing_writers_leave_whole_files():
    result = writers.racing_writes(100, random.Random(0))
    assert not result.faults, result.faults[0]
    assert result.cases >= 100


@pytest.mark.slow
def test_of_two_that_go_on_with_a_run_one_is_told():
    result = writers.double_resumes(2, random.Random(0))
    assert not result.faults, result.faults[0]


@pytest.mark.slow
def test_archives_without_an_end_are_refused(tmp_path):
    result = odd.archives(tmp_path)
    assert not result.faults, result.faults[0]
    assert result.outcomes == {"refused": 8}


@pytest.mark.slow
def test_trainings_of_every_kind_survive_a_kill():
    found = kill.run(2, seed=3)
    assert not [fault for result in found for fault in result.faults]
