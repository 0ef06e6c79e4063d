"""Votes in the registers of a GPU: the kernels, run by Triton's interpreter on CPU tensors, against made votes."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
CHECKS = Path(__file__).parent / "triton_checks.py"


def interpreted(*words, checks=CHECKS):
    """The checks in a process of their own: the interpreter must be chosen before kernels are imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "TORCHCAPS_NATIVE": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(checks), *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=CHECKS.parents[2])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("what", ["products", "layers", "odd", "half", "repeats", "squashes"])
def test_kernels_equal_votes_that_are_made(what):
    assert "checked" in interpreted(what)


@pytest.mark.slow
def test_kernels_equal_votes_that_are_made_at_length():
    assert "500 checked" in interpreted("random", 500)


def test_random_layers_equal_votes_that_are_made():
    assert "12 checked" in interpreted("random", 12)


@pytest.mark.parametrize("what", ["routings", "formulas", "extremes", "subclasses"])
def test_formulas_on_parents_equal_those_of_torch(what):
    assert "checked" in interpreted(what, checks=CHECKS.with_name("triton_fits.py"))


def test_without_a_gpu_the_backend_refuses_and_triton_is_not_imported():
    code = """
import sys, torch, torchcaps as tc
layer = tc.DenseCapsules(6, 3, 4, 5)
plan = layer.plan(tc.Capsules(torch.randn(2, 6, 4), torch.rand(2, 6)))  # too few for native
print(plan.refusals["triton"]); print("triton" in sys.modules)
"""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "it computes on GPUs, not on cpu\nFalse\n", done.stderr
