"""NumPy arrays and torch tensors as the vectors that compressors work on, and back."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import first_not_finite
from sparsewire.errors import CompressError


def as_vector(x: Any, dimension: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The elements of `x`, shape (dimension,), in `dtype`.

    Raises CompressError for another size, for what is not floating point, and for elements that are
    not finite in `dtype`, naming the first.
    """
    array = _as_numpy(x)
    if array.size != dimension:
        raise CompressError(f"this compressor takes {dimension} elements, not {array.size}")
    flat = array.reshape(-1)
    vector = np.ascontiguousarray(flat if array.dtype == dtype else _converted(flat, dtype))
    check_finite(vector, flat)
    return vector


def check_finite(vector: NDArray[Any], given: NDArray[Any]) -> None:
    """Raise CompressError, naming the first, where elements are not finite; `given` as `given`."""
    index = first_not_finite(vector)
    if index < vector.size:
        raise CompressError(f"element {index} is not finite as {vector.dtype}: {given[index]}")


def _converted(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if not (np.issubdtype(array.dtype, np.floating) or array.dtype.name == "bfloat16"):
        raise CompressError(f"only floating-point vectors can be compressed, not {array.dtype}")
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def as_kind_of(x: Any, values: NDArray[Any]) -> Any:
    """`values` as an array or tensor with the shape, dtype and device of `x`."""
    if _is_tensor(x):
        torch = sys.modules["torch"]
        return torch.from_numpy(values).to(device=x.device, dtype=x.dtype).reshape(x.shape)
    array = np.asarray(x)
    return values.astype(array.dtype, copy=False).reshape(array.shape)


def add_scaled(values: NDArray[Any], total: NDArray[Any], factor: float) -> None:
    """total += factor * values; each step is rounded to the dtype of `total`."""
    with np.errstate(over="ignore", invalid="ignore"):
        total += scaled_as(values, total.dtype, factor)


def scaled_as(values: NDArray[Any], dtype: np.dtype[Any], factor: float) -> NDArray[Any]:
    """factor * values, in `dtype`; the values themselves where that is the same."""
    converted = values.astype(dtype, copy=False)
    return converted if factor == 1 else converted * dtype.type(factor)


def _is_tensor(x: Any) -> bool:
    # A caller with a tensor has imported torch, so arrays need no torch.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _as_numpy(x: Any) -> NDArray[Any]:
    if not _is_tensor(x):
        return np.asarray(x)
    torch = sys.modules["torch"]
    tensor = x.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    array: NDArray[Any] = tensor.numpy()
    return array
