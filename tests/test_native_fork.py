"""Native functions ran with several threads, then the process forks: both sides go on, with the same numbers."""

import os
import subprocess
import sys

import pytest

PARENT = """
import multiprocessing, os, signal, sys, threading, warnings
import torch
import torchcaps as tc
from torchcaps.votes.native import fork

warnings.simplefilter("ignore")  # newer Pythons warn whoever forks with threads
torch.set_num_threads(2)
torch.manual_seed(0)
layer = tc.DenseCapsules(40, 6, 4, 8, routing="em")
children = tc.Capsules(torch.randn(64, 40, 4), torch.rand(64, 40))

def work():
    layer.zero_grad()
    parents = layer(children)
    (parents.poses.square().sum() + parents.activations.sum()).backward()
    return parents.poses.detach(), *(each.grad.clone() for each in layer.parameters())

def same():
    signal.alarm(30)  # a process that hangs is ended
    wanted = expected if torch.get_num_threads() == 2 else alone
    return all(torch.equal(a, b) for a, b in zip(work(), wanted, strict=True))

torch.set_num_threads(1)
alone = work()
torch.set_num_threads(2)
expected = work()

def forked():
    process = os.fork()
    if not process:
        os._exit(0 if same() else 3)
    assert os.waitpid(process, 0)[1] == 0
    assert same()
"""


def run(program):
    environment = {**os.environ, "TORCHCAPS_NATIVE": "1", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", PARENT + program], timeout=900, env=environment)
    assert done.returncode == 0


@pytest.mark.usefixtures("native")
def test_forked_processes_compute_the_same_with_as_many_threads():
    run("for _ in range(10): forked()\nassert fork._released and torch.get_num_threads() == 2")


@pytest.mark.slow
@pytest.mark.usefixtures("native")
def test_two_hundred_forks_go_well():
    run("for _ in range(200): forked()")


@pytest.mark.slow
@pytest.mark.usefixtures("native")
def test_a_forked_process_can_fork():
    run("process = os.fork()\nforked()\nif not process: os._exit(0)\nassert os.waitpid(process, 0)[1] == 0")


@pytest.mark.slow
@pytest.mark.usefixtures("native")
def test_pools_of_forked_processes_compute_the_same():
    run("""
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert all(pool.starmap(same, [()] * 6))
assert same()
""")


@pytest.mark.slow
@pytest.mark.usefixtures("native")
def test_a_thread_can_fork_while_another_computes():
    run("""
done = threading.Event()

def compute():
    other = tc.DenseCapsules(40, 6, 4, 8)
    while not done.is_set():
        other(children)

thread = threading.Thread(target=compute)
thread.start()
try:
    for _ in range(10):
        forked()
finally:
    done.set()
    thread.join()
""")


@pytest.mark.usefixtures("native")
def test_where_helpers_cannot_be_ended_a_forked_process_has_one_thread():
    run("""
fork.NAME = "no_such_function"  # an OpenMP before 5.0
process = os.fork()
if not process:
    os._exit(0 if same() and torch.get_num_threads() == 1 else 3)
assert os.waitpid(process, 0)[1] == 0
assert torch.get_num_threads() == 2 and same()
""")


@pytest.mark.slow
@pytest.mark.usefixtures("native")
def test_a_process_forked_while_another_thread_compiles_can_compile(tmp_path):
    run(f"""
import time
from torchcaps.votes.native import compiler
from torchcaps.votes.native.build import Geometry, library

os.environ |= {{"XDG_CACHE_HOME": {str(tmp_path)!r}, "CC": "sh -c 'exec sleep 1000'", "TORCHCAPS_NATIVE": ""}}
compiler.SECONDS = 5
thread = threading.Thread(target=library, args=(Geometry(1, 2, 3), torch.float32))
thread.start()
while not compiler._turn.locked():
    time.sleep(0.01)
process = os.fork()
if not process:
    signal.alarm(60)
    os.environ["CC"] = "cc"
    os._exit(3 if isinstance(library(Geometry(1, 3, 2), torch.float32), str) else 0)
assert os.waitpid(process, 0)[1] == 0
thread.join()
""")
