"""A core install, without extras: the wheel alone, and every package that is not its own dependency hidden."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HIDE = """
import sys

EXTRAS = {extras!r}


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Hidden())
import torchcaps

assert torchcaps.__file__.startswith({folder!r}), torchcaps.__file__
"""
EXTRAS = [
    "tyro",
    "lightning",
    "pytorch_lightning",
    "sklearn",
    "scipy",
    "PIL",
    "matplotlib",
    "mlxtend",
    "pooch",
    "tqdm",
    "tokenizers",
    "transformers",
    "fastapi",
    "pydantic",
    "uvicorn",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "tensorboard",
    "pandas",
    "pyarrow",
    "pytest",
    "hypothesis",
    "beartype",
]


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """Runs code with the wheel, unpacked into a folder of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if "No module named hatchling" in built.stderr:
        pytest.skip("hatchling is not installed")
    assert built.returncode == 0, built.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")

    def run(code):
        start = HIDE.format(extras=set(EXTRAS), folder=str(folder / "site"))
        words = [sys.executable, "-c", start + code]
        return subprocess.run(
            words, capture_output=True, text=True, env={"PYTHONPATH": str(folder / "site")}, cwd=folder
        )

    return run


def test_every_public_name_is_there(core):
    done = core("from torchcaps import *\nprint(len([getattr(torchcaps, name) for name in torchcaps.__all__]))")
    assert done.returncode == 0, done.stderr
    done = core("import pydoc\nprint(len(pydoc.render_doc(torchcaps)))")
    assert done.returncode == 0, done.stderr


def test_a_shipped_network_answers_and_a_layer_learns(core):
    code = """
import torch
print(torchcaps.load_pretrained()(torch.rand(2, 1, 28, 28)).activations.shape)
layer = torchcaps.DenseCapsules(6, 3, 4, 5)
torchcaps.margin_loss(layer(torchcaps.Capsules(torch.randn(2, 6, 4), torch.ones(2, 6))).activations,
    torch.tensor([0, 1])).backward()
"""
    done = core(code)
    assert done.returncode == 0, done.stderr
    assert "torch.Size([2, 10])" in done.stdout


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("torchcaps.CapsuleClassifier()", "expected the package scikit-learn, got it not installed. Run: pip install"),
        ("torchcaps.data.load_dataset('digits')", "expected the package scikit-learn, got it not installed. Run: pip"),
        ("torchcaps.load('nowhere')", "nowhere: expected a run folder, got no such folder."),
    ],
)
def test_what_needs_an_extra_says_so(core, code, said):
    done = core(code)
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]
