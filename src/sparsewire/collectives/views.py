"""Views of callers' arrays as the engine takes them, and the codes of options.

A view has an array's address, number of elements and dtype code. NumPy arrays and torch tensors are
read directly, other arrays through DLPack or the buffer protocol. An array that is to be written
and cannot be used in place is refused, never copied.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sparsewire._core import CODECS, DTYPES, OPS

Precision: TypeAlias = "str | Sequence[str | None] | None"

SPARSE_OPS = ("sum", "avg")
_INTEGERS = {DTYPES["int32"], DTYPES["int64"]}
_CPU = 1
_IMMUTABLE = ("jax", "jaxlib")
_NUMPY_CODES: dict[Any, int] = {
    np.dtype(name): code for name, code in DTYPES.items() if name != "bfloat16"
}
_torch_codes: dict[Any, int] = {}


class View(NamedTuple):
    """Memory of an array, valid as long as `owner` lives."""

    pointer: int
    size: int
    dtype: int
    owner: object
    nbytes: int


def view(x: Any, *, writable: bool) -> View:
    """The memory of `x`. Raises TypeError or ValueError with a text that says what to do."""
    if isinstance(x, np.ndarray):
        return _of_numpy(x, writable, x)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _of_tensor(x, torch)
    if writable and type(x).__module__.partition(".")[0] in _IMMUTABLE:
        raise TypeError(
            "JAX arrays are immutable: pass out=, for example out=numpy.empty_like(x), "
            "and turn the result into a JAX array with jax.numpy.asarray"
        )
    return _of_numpy(_as_numpy(x, writable), writable, x)


def check_out(source: View, out: View) -> None:
    """Raise ValueError for an `out` that does not fit `x`, or shares a part of its memory."""
    if (source.dtype, source.size) != (out.dtype, out.size):
        raise ValueError(
            f"out must have the dtype and size of x: x has {source.size} elements of "
            f"{dtype_name(source.dtype)}, out has {out.size} of {dtype_name(out.dtype)}"
        )
    if source.pointer != out.pointer:
        check_apart(out, source.pointer, source.nbytes)


def check_apart(out: View, begin: int, nbytes: int) -> None:
    """Raise ValueError if `out` shares memory with the `nbytes` bytes of `x` at `begin`."""
    if begin < out.pointer + out.nbytes and out.pointer < begin + nbytes:
        raise ValueError("out overlaps x: pass memory of its own, or none")


def dtype_name(code: int) -> str:
    return next(name for name, known in DTYPES.items() if known == code)


def _of_numpy(array: np.ndarray[Any, Any], writable: bool, owner: object) -> View:
    code = _NUMPY_CODES.get(array.dtype)
    if code is None:
        code = _numpy_code(array.dtype)
    flags = array.flags
    if not flags.c_contiguous:
        raise ValueError("the array is not C-contiguous: pass numpy.ascontiguousarray(x)")
    if not flags.aligned:
        raise ValueError("the array is not aligned: pass a copy, x.copy()")
    if writable and not flags.writeable:
        raise ValueError("the array is read-only: pass out=, or a copy")
    pointer = array.__array_interface__["data"][0]
    return View(pointer, array.size, code, (owner, array), array.nbytes)


def _numpy_code(dtype: np.dtype[Any]) -> int:
    """The code of a dtype that is not NumPy's own: bfloat16, which ml_dtypes and JAX share."""
    if dtype.name == "bfloat16" and dtype.isnative:
        code = _NUMPY_CODES[dtype] = DTYPES["bfloat16"]
        return code
    raise _unsupported(str(dtype))


def torch_code(dtype: Any) -> int:
    """The code of a dtype of torch; raises TypeError for one that the engine does not take."""
    if not _torch_codes:
        torch = sys.modules["torch"]
        _torch_codes.update((getattr(torch, name), code) for name, code in DTYPES.items())
    code = _torch_codes.get(dtype)
    if code is None:
        raise _unsupported(str(dtype))
    return code


def check_gradient(x: Any) -> None:
    """Raise ValueError for a tensor whose changes autograd would have to record."""
    if x.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise ValueError(
            "the tensor requires grad, and all_reduce is not differentiable: pass x.detach(), "
            "or call it under torch.no_grad()"
        )


def _of_tensor(x: Any, torch: Any) -> View:
    if not x.is_cpu:
        raise ValueError(f"the tensor is on {x.device}: pass x.cpu()")
    if x.layout is not torch.strided:
        raise TypeError(f"the tensor has layout {x.layout}: pass x.to_dense()")
    code = torch_code(x.dtype)
    check_gradient(x)
    if x.is_neg():
        raise ValueError("the tensor is negated only when it is read: pass x.resolve_neg()")
    if not x.is_contiguous():
        raise ValueError("the tensor is not contiguous: pass x.contiguous()")
    count = x.numel()
    pointer = x.data_ptr()
    if count and not pointer:
        raise TypeError(f"{type(x).__name__} has no memory of its own: pass a plain tensor")
    return View(pointer, count, code, x, count * x.element_size())


def _as_numpy(x: Any, writable: bool) -> np.ndarray[Any, Any]:
    """A NumPy array over the memory of `x`; it may be a copy only if `x` is just read."""
    if hasattr(x, "__dlpack_device__") and hasattr(x, "__dlpack__"):
        kind = int(x.__dlpack_device__()[0])
        if kind != _CPU:
            raise ValueError(
                f"the array is not in CPU memory (DLPack device {kind}): copy it there"
            )
        return _from_dlpack(x, writable)
    try:
        return np.asarray(memoryview(x))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{type(x).__name__} is no array that sparsewire can use ({error}): pass a NumPy "
            "array, a torch CPU tensor, or an object with DLPack or the buffer protocol"
        ) from None


def _from_dlpack(x: Any, writable: bool) -> np.ndarray[Any, Any]:
    try:
        return np.from_dlpack(x)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        if hasattr(x, "__array__") and not writable:
            # DLPack in NumPy has no bfloat16, but JAX arrays become ml_dtypes' without a copy.
            return np.asarray(x)
        what = "written to: pass out=, such as a NumPy array" if writable else "read"
        raise TypeError(
            f"{type(x).__name__} has no DLPack ({error}) by which it can be {what}"
        ) from None


def _unsupported(dtype: str) -> TypeError:
    return TypeError(f"dtype {dtype} is not supported: use one of {', '.join(DTYPES)}")


def dense_code(op: str, dtype: int) -> int:
    """The code of `op` on dense arrays of a dtype, given by its code `dtype`.

    Raises ValueError for an unknown `op`, and TypeError for "avg" of integers.
    """
    if op not in OPS:
        raise ValueError(f"op {op!r} is not known: use one of {', '.join(OPS)}")
    if op == "avg" and dtype in _INTEGERS:
        raise TypeError(
            f'op "avg" of {dtype_name(dtype)} would lose fractions: '
            'use "sum" and divide, or pass floating-point numbers'
        )
    return OPS[op]


def sparse_code(op: str, dtype: int) -> int:
    """The code of `op` on sparse vectors; otherwise like `dense_code`."""
    if op not in SPARSE_OPS:
        raise ValueError(f"op {op!r} is not for sparse vectors: use {' or '.join(SPARSE_OPS)}")
    return dense_code(op, dtype)


def codecs(precision: Precision, dtype: int, op: str) -> tuple[int, int]:
    """Codec codes of sent values and of sums, for values of the dtype with code `dtype`.

    Raises ValueError for unknown names and for an `op` other than "sum" and "avg", and TypeError
    for dtypes other than float32.
    """
    if precision is None:
        return CODECS["raw"], CODECS["raw"]
    first, second = (_code(name) for name in _phases(precision))
    if (first or second) and dtype != DTYPES["float32"]:
        raise TypeError(
            f"precision= is for float32 alone, not {dtype_name(dtype)}: leave it out, or convert"
        )
    if (first or second) and op not in {"sum", "avg"}:
        raise ValueError(f'precision= is for "sum" and "avg", not "{op}"')
    return first, second


def _phases(precision: str | Sequence[str | None]) -> Sequence[str | None]:
    if isinstance(precision, str):
        return precision, precision
    if not isinstance(precision, Sequence) or len(precision) != 2:
        raise ValueError(
            "precision must be a name, or a pair: of what ranks send and of what comes back, "
            f"not {precision!r}"
        )
    return precision


def _code(name: str | None) -> int:
    if name is None or name == "float32":
        return CODECS["raw"]
    if name not in CODECS or name == "raw":
        known = ", ".join(known for known in CODECS if known != "raw")
        raise ValueError(f"precision {name!r} is not known: use float32, {known}")
    return CODECS[name]
