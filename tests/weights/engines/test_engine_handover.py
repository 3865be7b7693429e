"""Tensors that a loop pushes, and a publisher pulls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sparsewire.weights.engines.handover import Handover


def listed(pairs: Iterator[tuple[str, Any]]) -> Any:
    return list(pairs)


def test_all_that_is_put_is_published_in_order() -> None:
    handover = Handover(listed)
    for number in range(100):
        handover.put(str(number), number)
    assert handover.finish() == [(str(number), number) for number in range(100)]


def test_put_returns_when_the_tensor_was_used() -> None:
    used: list[int] = []

    def publish(pairs: Iterator[tuple[str, Any]]) -> Any:
        used.extend(tensor[0] for _, tensor in pairs)

    handover = Handover(publish)
    memory = [0]
    for number in range(50):
        memory[0] = number
        handover.put("a", memory)
    handover.finish()
    assert used == list(range(50))


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_what_publish_raises_is_raised_when_the_loop_has_ended(taken: int) -> None:
    def publish(pairs: Iterator[tuple[str, Any]]) -> Any:
        for _ in range(taken):
            next(pairs)
        raise ValueError("no room")

    handover = Handover(publish)
    for number in range(10):
        handover.put(str(number), number)
    with pytest.raises(ValueError, match="no room"):
        handover.finish()


def test_a_loop_that_fails_publishes_nothing() -> None:
    published: list[Any] = []
    handover = Handover(lambda pairs: published.append(list(pairs)))  # type: ignore[arg-type]
    handover.put("a", 1)
    handover.abandon(RuntimeError("a rank is lost"))
    assert not published
