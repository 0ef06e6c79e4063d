"""mypy --strict on a user's file."""

import subprocess
import sys
from pathlib import Path

from tests.typed.consumer import main

FOLDER = Path(__file__).parent / "typed"


def mypy(name):
    words = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent"]
    words += ["--config-file", "", "--untyped-calls-exclude=torch", str(FOLDER / name)]
    source = str(FOLDER.parents[1] / "src")
    return subprocess.run(words, capture_output=True, text=True, env={"MYPYPATH": source, "PATH": ""}, cwd=source)


def test_a_users_file_has_no_any_from_public_calls():
    done = mypy("consumer.py")
    assert done.returncode == 0, done.stdout
    main()  # and it runs


def test_a_misspelled_option_of_a_routing_is_found():
    done = mypy("wrong.py")
    assert done.returncode == 1
    assert 'Unexpected keyword argument "leeky"' in done.stdout


def test_a_misspelled_option_of_a_loss_is_found():
    assert 'Unexpected keyword argument "reducton"' in mypy("wrong.py").stdout
