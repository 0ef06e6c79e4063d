import pytest
import torch
from hypothesis import settings

from tests.browser import chromium, open_page  # noqa: F401  # fixtures

settings.register_profile("torchcaps", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("torchcaps")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
