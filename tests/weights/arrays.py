"""Weights of a few arrays, versions of them, and readers that follow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire.weights import Publisher, Receiver

LIMIT_S = 20.0
Weights = dict[str, NDArray[Any]]


def weights(seed: int = 0) -> Weights:
    random = np.random.default_rng(seed)
    return {
        "large": random.integers(0, 2**16, (1100, 1000), dtype=np.uint16),
        "small": random.standard_normal(7).astype(np.float32),
        "table": random.integers(-9, 9, (64, 3), dtype=np.int8),
        "empty": np.zeros((0, 4), np.float16),
        "scalar": np.array(3.5),
    }


def copy(tensors: Weights) -> Weights:
    return {name: array.copy() for name, array in tensors.items()}


def step(tensors: Weights, number: int = 0) -> None:
    """Change few elements, as a training would."""
    tensors["large"].reshape(-1)[number % 97 :: 97] += 1
    tensors["small"][number % 7] *= -1
    tensors["table"][number % 64] += 1


def assert_alike(found: Weights, wanted: Weights) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].tobytes() == array.tobytes(), name


def anchors(publisher: Publisher) -> list[int]:
    """The versions that the publisher has whole."""
    messages = publisher.status()["messages"]
    return [each["version"] for each in messages if each["base"] is None]


def follow(receiver: Receiver) -> None:
    """Get and apply the next version."""
    receiver.stage(timeout=LIMIT_S).apply()


@contextmanager
def followed(publisher: Publisher) -> Iterator[tuple[Weights, Weights, Receiver]]:
    """What a publisher has, the same at a reader, and its receiver."""
    fresh = weights()
    publisher.publish(fresh)
    mine = copy(fresh)
    with Receiver(publisher.address, mine) as receiver:
        receiver.stage(timeout=LIMIT_S).apply()
        yield fresh, mine, receiver
