"""Messages name options on the command line, and arguments in Python."""

import numpy as np
import pytest
import torch

import torchcaps as tc
from tests.support.commands import run
from torchcaps._core.arguments import as_called, on_command_line
from torchcaps._core.errors import InputError, input_error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Drop --batch-size.", "Drop batch_size."),
        ("Give --size, say --size 64.", "Give size, say size=64."),
        ("--nodes: expected it, got no --out. Give --out FOLDER.", "nodes: expected it, got no out. Give out=FOLDER."),
        ("Train with --option crop=32 and --size 48.", "Train with crop=32 and size=48."),
        ("Choose another --data-dir.", "Choose another folder."),
        ("Lower --lr; or: torchcaps train --resume runs/a", "Lower lr; or: torchcaps train --resume runs/a"),
        ("Run: pip install --no-deps texts. Drop --data.", "Run: pip install --no-deps texts. Drop data."),
        ("expected a name, got '--size 3'. Drop it.", "expected a name, got '--size 3'. Drop it."),
    ],
)  # fmt: skip
def test_messages_name_arguments_in_python_and_options_on_the_command_line(text, expected):
    assert as_called(text) == expected
    with on_command_line():
        assert as_called(text) == text
    assert as_called(text) == expected


def test_errors_name_arguments_when_raised_from_python():
    assert str(input_error("train", "a GPU", "a CPU", "Drop --precision.")).endswith("Drop precision.")


def test_fit_names_its_own_arguments(tmp_path):
    (tmp_path / "file").write_text("not a run")
    data = np.zeros((20, 1, 16, 16), dtype=np.float32), np.arange(20) % 2
    model = tc.create_model("efficient", image_shape=(1, 16, 16), classes=2)
    with pytest.raises(InputError, match=r"got one that holds file\. Choose another out\.$"):
        tc.fit(model, data, out=tmp_path)
    with pytest.raises(InputError, match=r"a device cuda, got none on this machine\. Drop device\.$"):
        tc.fit(model, data, device="cuda")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_command_line_keeps_its_options(tmp_path, capsys):
    assert run("train", "digits", "--device", "cuda", "--out", tmp_path / "a") == 2
    assert capsys.readouterr().err.endswith("Drop --device.\n")
