"""Operators of outer optimizers on tensors: the same messages and the same sums as on arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sparsewire.compress import CompressError, Draws, as_contraction, parse
from sparsewire.torch.outer.on_device import OnDevice

ELEMENTS = 10_000
OPERATORS = [
    *("span-top-k:64:4096", "rounded:4:64+span-top-k:64:4096", "centroids:64+span-top-k:64:4096"),
    *("block-top-k:0.1", "qsgd:7", "natural", "fp4", "dct-top-k:32", "low-rank:2"),
]


def vector(seed: int) -> torch.Tensor:
    return torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(seed))


def operator(text: str) -> OnDevice:
    try:
        return OnDevice(as_contraction(parse(text, ELEMENTS)))
    except CompressError as error:
        pytest.skip(f"not an operator yet: {error}")


@pytest.mark.parametrize("text", OPERATORS)
def test_messages_of_tensors_are_those_of_arrays(text: str) -> None:
    made, x = operator(text), vector(1)
    of_tensor = made.pack(made.code(x, Draws(3)))
    assert of_tensor == made.pack(made.code(x.numpy(), Draws(3)))


@pytest.mark.parametrize("text", OPERATORS)
def test_sums_on_tensors_are_those_on_arrays(text: str) -> None:
    made, x = operator(text), vector(1)
    code = made.read(made.pack(made.code(x, Draws(3))))
    on_tensor, on_array = vector(2), vector(2).numpy().copy()
    made.add(code, on_tensor, -1.0)
    made.add(code, on_array, -1.0)
    assert np.array_equal(on_tensor.numpy(), on_array)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_tensors_that_are_not_finite_are_refused(value: float) -> None:
    made, x = operator("span-top-k:64:4096"), vector(1)
    x[77] = value
    with pytest.raises(CompressError, match="finite"):
        made.code(x, Draws(3))
