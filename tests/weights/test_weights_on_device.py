"""Tensors compared and written where they are give the bits and the codes of the host's path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire._core import DELTA_CHUNK, encode_delta
from sparsewire.errors import InputError
from sparsewire.weights.shards.changes import Changes
from sparsewire.weights.shards.layout import Layout
from sparsewire.weights.shards.places import Place
from sparsewire.weights.shards.views import View
from sparsewire.weights.versions.tensors import FORMATS, Tensor

torch = pytest.importorskip("torch")

from sparsewire.weights.shards import on_device  # noqa: E402
from sparsewire.weights.shards.on_device import Crossed, DeviceTarget, chunks_over, crossing  # noqa: E402

DTYPES = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I8": torch.int8,
    "U8": torch.uint8,
    "I64": torch.int64,
    "C64": torch.complex64,
}


def random_bits(count: int, width: int, seed: int) -> Any:
    """Any bits: NaNs, infinities and zeros with a sign are among them."""
    return np.random.default_rng(seed).integers(0, 256, count * width, np.uint8)


def changed(bits: Any, width: int, share: float, seed: int) -> Any:
    random = np.random.default_rng(seed)
    fresh = bits.copy().view(f"u{width}")
    chosen = random.random(len(fresh)) < share
    fresh[chosen] += random.integers(1, 3, chosen.sum()).astype(fresh.dtype)
    return fresh.view(np.uint8)


def on_torch(bits: Any, dtype: str, shape: tuple[int, ...] | None = None) -> Any:
    tensor = torch.from_numpy(bits.copy()).view(DTYPES[dtype])
    return tensor if shape is None else tensor.view(shape)


def bytes_of(tensor: Any) -> Any:
    return tensor.view(torch.uint8).numpy().reshape(-1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.4, 1.0])
def test_codes_are_those_of_the_host(dtype: str, share: float) -> None:
    element, count = FORMATS[dtype], 3000
    old = random_bits(count, element.width, 1)
    new = changed(old, element.width, share, 2)
    kept = Tensor(dtype, (count,), old)
    found = [*chunks_over(kept, on_torch(old, dtype), on_torch(new, dtype))]
    codes = [
        encode_delta(a, b, element.width, element.floating)
        for a, b in zip(kept.chunks(), found, strict=True)
    ]
    assert codes == [encode_delta(old, new, element.width, element.floating)]


def test_every_chunk_crosses_in_fewer_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_device, "_AT_ONCE", 2 * DELTA_CHUNK)
    old = np.zeros(3 * DELTA_CHUNK + 100, np.uint16)
    new = old.copy()
    new[[5, DELTA_CHUNK - 1]] = 1
    new[DELTA_CHUNK : 2 * DELTA_CHUNK : 2] = 2  # A half: 6 bytes each, against 2 of all.
    new[-1] = 3
    found = [*crossing(torch.from_numpy(old), torch.from_numpy(new))]
    assert [each.elements for each in found] == [DELTA_CHUNK] * 3 + [100]
    sparse = [None if each.positions is None else each.positions.tolist() for each in found]
    assert sparse == [[5, DELTA_CHUNK - 1], None, [], [99]]
    kept = Tensor("U16", old.shape, old.view(np.uint8))
    chunks = [each.over(chunk) for each, chunk in zip(found, kept.chunks(), strict=True)]
    np.testing.assert_array_equal(np.concatenate(chunks).view(np.uint16), new)
    assert not old.any()
    for each, chunk in zip(found, kept.chunks(), strict=True):
        each.write(chunk)
    np.testing.assert_array_equal(old, new)


def test_a_chunk_that_did_not_change_is_not_copied() -> None:
    chunk = np.zeros(8, np.uint8)
    same = Crossed(4, np.empty(0, np.int64), np.empty(0, np.uint16))
    assert same.over(chunk) is chunk


def test_what_is_not_alike_is_refused() -> None:
    for other in (torch.zeros(3), torch.zeros(2, dtype=torch.float16)):
        with pytest.raises(InputError, match="compare what is alike"):
            next(crossing(torch.zeros(2), other))
    with pytest.raises(InputError, match="complex128"):
        next(crossing(*[torch.zeros(2, dtype=torch.complex128)] * 2))


def test_an_empty_tensor_has_no_chunks() -> None:
    assert not [*crossing(torch.zeros(0, 3), torch.zeros(0, 3))]


@given(
    st.sampled_from(sorted(DTYPES)),
    st.sampled_from([0.02, 0.4, 1.0]),
    st.sampled_from(["steps", "any"]),
    st.integers(0, 2**32),
)
def test_changes_are_written_where_a_tensor_is(
    dtype: str, share: float, kind: str, seed: int
) -> None:
    element, shape = FORMATS[dtype], (20, 30)
    old = random_bits(600, element.width, seed)
    other = random_bits(600, element.width, seed + 1)
    new = changed(old, element.width, share, seed) if kind == "steps" else other
    code, _ = encode_delta(old, new, element.width, element.floating)
    target = DeviceTarget(dtype, on_torch(old, dtype, shape))
    route = Layout({"w": View.whole("w", shape)}).route(Place.whole("w", shape))
    changes = Changes.of(code, 600, element)
    for write in route.writes({"w": target}, dtype, 0, changes):
        write.write()
        write.write()
        assert write.nbytes <= 600 * (8 + element.width)
    np.testing.assert_array_equal(bytes_of(target.tensor), new)


def test_a_parameter_that_learns_is_written_too() -> None:
    weight = torch.nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))
    target = DeviceTarget("BF16", weight)
    target.scattering(np.array([1, 3]), "values", np.array([0x3F80, 0x4000], np.uint16)).write()
    assert weight.tolist() == [0, 1, 0, 2]


def test_a_tensor_in_pieces_is_refused() -> None:
    target = DeviceTarget("F32", torch.zeros(3, 2).T)
    with pytest.raises(InputError, match="contiguous"):
        target.scattering(np.array([0]), "values", np.array([1], np.uint32))
