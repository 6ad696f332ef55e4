"""The real engine as fixtures: one shared by tests that only talk, a fresh one for tests that hurt it."""

from collections.abc import Callable, Iterator

import pytest
from tests.real.engine import Llama


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    """Four slots, shared by the whole run: a test leaves it as it was."""
    engine = Llama(tmp_path_factory.mktemp("llama") / "log", slots=4)
    engine.start()
    yield engine
    engine.stop()


@pytest.fixture
def new_llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Llama]]:
    """Make engines of the test's own, not yet started."""
    engines: list[Llama] = []

    def make(*, slots: int = 1) -> Llama:
        engines.append(Llama(tmp_path_factory.mktemp("llama") / "log", slots=slots))
        return engines[-1]

    yield make
    for engine in engines:
        engine.stop()
