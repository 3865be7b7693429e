"""Tensors and arrays give the same bits, and a tensor gives a tensor of its kind."""

from __future__ import annotations

import numpy as np
import pytest
from compress_cases import BIASED, UNBIASED, bits_of

from sparsewire.compress import CompressError, Draws, parse

torch = pytest.importorskip("torch")

X = np.random.default_rng(1).standard_normal(72)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", UNBIASED + BIASED)
def test_tensor_and_array_agree(name: str, dtype: type) -> None:
    compressor, array = parse(name, 72, dtype), X.astype(dtype)
    tensor = torch.tensor(array)
    from_array, from_tensor = (compressor.compress(x, Draws(6)) for x in (array, tensor))
    assert isinstance(from_tensor, torch.Tensor)
    assert bits_of(from_array) == bits_of(from_tensor.numpy())
    assert compressor.encode(array, Draws(6)) == compressor.encode(tensor, Draws(6))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_shape_and_input_are_kept(dtype: torch.dtype) -> None:
    tensor = torch.tensor(X, dtype=dtype).reshape(8, 9).t()
    before = tensor.clone()
    compressed = parse("top-k:10", 72, np.float64).compress(tensor, Draws(0))
    assert (compressed.dtype, compressed.shape) == (dtype, tensor.shape)
    assert torch.equal(tensor, before)
    kept = compressed != 0
    assert int(kept.sum()) == 10
    assert torch.equal(compressed[kept], tensor[kept])


def test_a_tensor_that_requires_grad_is_taken_as_it_is() -> None:
    tensor = torch.ones(72, requires_grad=True)
    assert not parse("identity", 72).compress(tensor, Draws(0)).requires_grad


def test_a_tensor_of_integers_is_refused() -> None:
    with pytest.raises(CompressError, match="int64"):
        parse("natural", 3).compress(torch.arange(3), Draws(0))
