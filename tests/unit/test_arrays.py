"""Which arrays are accepted, what is read from them, and what is refused with which advice."""

from __future__ import annotations

import array
import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sparsewire._core import DTYPES
from sparsewire.collectives.views import check_out, view


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "bfloat16"])
def test_numpy(name: str) -> None:
    x = np.zeros((3, 5), name)
    seen = view(x, writable=True)
    assert seen.pointer == x.ctypes.data
    assert (seen.size, seen.dtype, seen.nbytes) == (15, DTYPES[name], x.nbytes)


def test_numpy_aliases_of_a_dtype() -> None:
    for dtype in ("longlong", "int_", "=i8"):
        assert view(np.zeros(2, dtype), writable=True).dtype == DTYPES["int64"]


def test_ml_dtypes_bfloat16() -> None:
    x = np.zeros(4, ml_dtypes.bfloat16)
    assert view(x, writable=True).dtype == DTYPES["bfloat16"]


def test_shapes_without_axes_or_elements() -> None:
    assert view(np.zeros(()), writable=True).size == 1
    assert view(np.zeros((0, 3)), writable=True).size == 0


def test_buffer_protocol_shares_memory() -> None:
    x = array.array("f", [1, 2, 3])
    seen = view(x, writable=True)
    assert (seen.pointer, seen.size) == (x.buffer_info()[0], 3)
    assert view(memoryview(x)[1:], writable=True).pointer == seen.pointer + 4


def test_view_keeps_the_owner_alive() -> None:
    x = np.zeros(3)
    gone = weakref.ref(x)
    seen = view(x, writable=True)
    del x
    gc.collect()
    assert gone() is not None
    del seen
    gc.collect()
    assert gone() is None


class Exporter:
    """An array of another library: DLPack and nothing else."""

    def __init__(self, values: np.ndarray[Any, Any], device: tuple[int, int] = (1, 0)) -> None:
        self.values = values
        self.device = device

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.values.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def test_dlpack_shares_memory() -> None:
    x = np.zeros(3, np.float32)
    assert view(Exporter(x), writable=True).pointer == x.ctypes.data


def test_dlpack_of_a_read_only_array_can_be_a_source() -> None:
    x = np.zeros(3)
    x.flags.writeable = False
    with pytest.raises((TypeError, ValueError)):
        view(Exporter(x), writable=True)


def test_device_memory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not in CPU memory \(DLPack device 2\)"):
        view(Exporter(np.zeros(3), (2, 0)), writable=False)


@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        (np.zeros((4, 4))[:, ::2], ValueError, "ascontiguousarray"),
        (np.zeros((4, 4), order="F"), ValueError, "ascontiguousarray"),
        (np.zeros(3, np.uint8), TypeError, "dtype uint8 is not supported: use one of float32"),
        (np.zeros(3, ">f4"), TypeError, "is not supported"),
        (np.zeros(3, np.complex64), TypeError, "is not supported"),
        (np.zeros(3, "O"), TypeError, "is not supported"),
        (np.frombuffer(b"12345678", np.float32), ValueError, "read-only: pass out="),
        (np.zeros(9, np.uint8)[1:].view(np.float32), ValueError, "not aligned"),
        ([1.0, 2.0], TypeError, "list is no array .* pass a NumPy array"),
        (1.0, TypeError, "float is no array"),
        (None, TypeError, "NoneType is no array"),
        (b"bytes", TypeError, "dtype uint8 is not supported"),
    ],
)
def test_refused(x: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        view(x, writable=True)


def test_read_only_can_be_a_source() -> None:
    assert view(np.frombuffer(b"12345678", np.float32), writable=False).size == 2


def test_jax_arrays_are_never_an_out() -> None:
    foreign = type("ArrayImpl", (Exporter,), {"__module__": "jaxlib.xla_extension"})
    x = foreign(np.zeros(3))
    with pytest.raises(TypeError, match="immutable: pass out="):
        view(x, writable=True)
    assert view(x, writable=False).size == 3


def test_out_fits_and_does_not_overlap() -> None:
    memory = np.zeros(10)
    source = view(memory[:5], writable=False)
    check_out(source, source)
    check_out(source, view(memory[5:], writable=True))
    with pytest.raises(ValueError, match="out overlaps x"):
        check_out(source, view(memory[4:9], writable=True))
    with pytest.raises(ValueError, match="x has 5 elements of float64, out has 4"):
        check_out(source, view(memory[5:9], writable=True))
    with pytest.raises(ValueError, match="out has 5 of int64"):
        check_out(source, view(np.zeros(5, np.int64), writable=True))


class TestTorch:
    """Torch tensors, where torch is installed."""

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        self.torch = pytest.importorskip("torch")

    @pytest.mark.parametrize("name", list(DTYPES))
    def test_dtypes(self, name: str) -> None:
        x = self.torch.zeros(2, 3, dtype=getattr(self.torch, name))
        seen = view(x, writable=True)
        assert (seen.pointer, seen.size, seen.dtype) == (x.data_ptr(), 6, DTYPES[name])
        assert seen.nbytes == 6 * x.element_size()

    def test_requires_grad(self) -> None:
        x = self.torch.zeros(3, requires_grad=True)
        with pytest.raises(ValueError, match=r"x\.detach\(\)"):
            view(x, writable=True)
        assert view(x.detach(), writable=True).pointer == x.data_ptr()
        with self.torch.no_grad():
            assert view(x, writable=True).pointer == x.data_ptr()

    def test_refused(self) -> None:
        torch = self.torch
        with pytest.raises(ValueError, match=r"x\.contiguous\(\)"):
            view(torch.zeros(4, 4).t(), writable=True)
        with pytest.raises(TypeError, match=r"x\.to_dense\(\)"):
            view(torch.zeros(4).to_sparse(), writable=True)
        with pytest.raises(TypeError, match=r"torch\.uint8 is not supported"):
            view(torch.zeros(4, dtype=torch.uint8), writable=True)
        with pytest.raises(ValueError, match="the tensor is on meta"):
            view(torch.zeros(4, device="meta"), writable=True)


def test_tensor_that_is_negated_only_when_read() -> None:
    torch = pytest.importorskip("torch")
    x = torch._neg_view(torch.ones(3))
    for writable in (True, False):
        with pytest.raises(ValueError, match=r"pass x\.resolve_neg\(\)"):
            view(x, writable=writable)
    assert view(x.resolve_neg(), writable=True).size == 3


class Copying:
    """An array that can be read as a copy only."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("no such dtype")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.ones(3, np.float32)


def test_copy_is_read_but_never_written() -> None:
    assert view(Copying(), writable=False).size == 3
    with pytest.raises(TypeError, match="pass out="):
        view(Copying(), writable=True)
