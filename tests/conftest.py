import os

import pytest
import torch
from hypothesis import settings

from tests.browser import chromium, open_page  # noqa: F401  # fixtures

settings.register_profile("torchcaps", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("torchcaps")

if "PYTEST_XDIST_WORKER" in os.environ:  # threads of several workers on the same cores wait for each other
    THREADS = max(1, (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    torch.set_num_threads(THREADS)
    os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))  # for the processes that tests start


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
