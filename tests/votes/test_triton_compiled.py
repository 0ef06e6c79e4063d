"""The GPU kernels compiled ahead of time, without a GPU: registers, spills, occupancy; and what layers would cost."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
HELD = """
import sys
sys.path.insert(0, {folder!r})
import gpu_kernels
for (size, name), each in gpu_kernels.table({capability}).items():
    assert each.stack == 0, (size, name, each)
    assert each.occupancy >= 0.25, (size, name, each)
print("held")
"""


def run(code):
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    "capability", [80, pytest.param(75, marks=pytest.mark.slow), pytest.param(90, marks=pytest.mark.slow)]
)
def test_kernels_do_not_spill_and_fill_a_quarter_of_a_multiprocessor(capability):
    assert "held" in run(HELD.format(folder=str(BENCHMARKS), capability=capability))


def test_costs_of_layers_on_a_gpu_are_those_that_are_written_down():
    """Counted on the meta device: launches and traffic of kernels, of torch in tiles, and of textbook code."""
    code = f"""
import sys
sys.path.insert(0, {str(BENCHMARKS)!r})
import gpu_costs
found = {{name: {{word: each.cost for word, each in versions.items()}} for name, versions in gpu_costs.costs().items()}}
(dense, convolution, *_) = found.values()
assert dense["kernels"].launches <= 39, dense
assert convolution["kernels"].launches <= 104, convolution
for case in (dense, convolution):
    assert case["kernels"].bytes * 20 <= case["textbook"].bytes, case
print("counted")
"""
    assert "counted" in run(code)
