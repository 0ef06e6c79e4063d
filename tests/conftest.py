import os
from collections.abc import Callable, Generator, Iterator

import pytest
import torch
from hypothesis import settings

from tests.support.browser import chromium, open_page  # noqa: F401  # fixtures
from tests.support.citations import called, calls, citations
from tests.support.runs import frozen, pictures, resnet, trained  # noqa: F401  # fixtures
from torchcaps._core.extensions import VARIABLE
from torchcaps.votes.native import backend, build, describe

settings.register_profile("torchcaps", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("torchcaps")

if "PYTEST_XDIST_WORKER" in os.environ:  # threads of several workers on the same cores wait for each other
    THREADS = max(1, (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    torch.set_num_threads(THREADS)
    os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))  # for the processes that tests start


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test imports or trusts is not trusted in the next one."""
    monkeypatch.setenv(VARIABLE, os.environ.get(VARIABLE, ""))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A test that docs/papers.md cites must call the code that it is cited for; one with cases, in each case some."""
    cited = [each for each in citations() if pyfuncitem.originalname in each.tests]
    if not cited:
        return (yield)
    with calls() as seen:
        result = yield
    missed = [each.code for each in cited if not called(each, seen)]
    allowed = len(cited) - 1 if hasattr(pyfuncitem, "callspec") else 0
    assert len(missed) <= allowed, f"docs/papers.md cites this test for {missed}, which it does not call"
    return result


@pytest.fixture
def without_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers compute with torch alone."""
    monkeypatch.setenv("TORCHCAPS_NATIVE", "0")


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers compute natively whatever they can, however few examples there are."""
    if describe().startswith("off"):
        pytest.skip(f"native functions are {describe()}")
    monkeypatch.setenv("TORCHCAPS_NATIVE", "1")
    monkeypatch.setattr("torchcaps.votes.native.backend.FEWEST", 1)


@pytest.fixture(params=["torch", "native", "native again"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way in which layers compute tiles: with torch alone, natively, and natively again in the backward pass."""
    request.getfixturevalue("without_native" if request.param == "torch" else "native")
    if request.param == "native again":
        monkeypatch.setattr("torchcaps.votes.engine.KEPT_BYTES", 0)
        monkeypatch.setattr(backend, "tile_of", _small_tiles(backend.tile_of))


def _small_tiles(usual: Callable[..., int]) -> Callable[..., int]:
    """Tiles of two examples, however much room their block has, where the bytes of a tile are next to none."""
    return lambda examples, windows, most, lanes: usual(examples, windows, most, lanes) if most else 2


@pytest.fixture
def _forgotten() -> Iterator[None]:
    """What was built in a test is forgotten after it."""
    yield
    build._built.cache_clear()
