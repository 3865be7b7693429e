"""Rank processes shared by all tests of the PyTorch integration."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

from ranks import Ranks  # noqa: E402

WORLD_SIZE = 3


class Shared:
    """Ranks that live as long as no test breaks them."""

    def __init__(self) -> None:
        self._ranks: Ranks | None = None

    def get(self) -> Ranks:
        if self._ranks is None or self._ranks.broken:
            self._ranks = Ranks(WORLD_SIZE)
        return self._ranks

    def close(self) -> None:
        if self._ranks is not None:
            self._ranks.close()


@pytest.fixture(scope="session")
def shared_ranks() -> Iterator[Shared]:
    shared = Shared()
    yield shared
    shared.close()


@pytest.fixture
def ranks(shared_ranks: Shared) -> Ranks:
    """Three ranks, for tests that leave them as they were."""
    return shared_ranks.get()


@pytest.fixture
def new_ranks() -> Iterator[Callable[..., Ranks]]:
    """Make ranks of one's own, for tests that kill them or need another backend."""
    made: list[Ranks] = []

    def make(size: int, backend: str = "sparsewire") -> Ranks:
        made.append(Ranks(size, backend))
        return made[-1]

    yield make
    for ranks in made:
        ranks.close()
