"""Changes of several versions as one: they come to what the versions come to, one after another."""

from __future__ import annotations

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparsewire._core import encode_delta
from sparsewire.errors import DataError
from sparsewire.weights.shards.changes import Changes, composed
from sparsewire.weights.shards.targets import HostTarget
from sparsewire.weights.versions.tensors import FORMATS, Tensor

Bits = NDArray[np.uint16]
BF16 = FORMATS["BF16"]
SIZE = 40


def xor_code(base: Bits, fresh: Bits) -> bytes:
    return b"\5" + zstandard.compress((base ^ fresh).tobytes())


def code_of(base: Bits, fresh: Bits, *, packed: bool) -> bytes:
    if packed:
        return xor_code(base, fresh)
    return encode_delta(base.view(np.uint8), fresh.view(np.uint8), 2, True)[0]


@st.composite
def versions(draw: st.DrawFn) -> list[Bits]:
    """Few elements change from one to the next, some of them again and again."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    found = [random.integers(0, 2**16, SIZE, dtype=np.uint16)]
    for _ in range(draw(st.integers(1, 4))):
        bits = found[-1].copy()
        chosen = random.random(SIZE) < draw(st.sampled_from([0.0, 0.1, 0.5]))
        bits[chosen] += random.integers(
            1, draw(st.sampled_from([3, 2**15])), chosen.sum(), dtype=np.uint16
        )
        found.append(bits)
    return found


@given(versions(), st.data())
def test_changes_compose(bits: list[Bits], data: st.DataObject) -> None:
    changes: list[Changes] = []
    packed = data.draw(st.lists(st.booleans(), min_size=len(bits) - 1, max_size=len(bits) - 1))
    try:
        for base, fresh, is_packed in zip(bits, bits[1:], packed, strict=False):
            code = code_of(base, fresh, packed=is_packed)
            changes = composed(changes, Changes.of(code, SIZE, BF16), BF16)
    except DataError:
        # Steps and what changes bits cannot be one without the base.
        assert any(packed)
        assert len(bits) > 2
        return
    found = bits[0].copy()
    target = HostTarget(Tensor("BF16", (SIZE,), found.view(np.uint8)))
    for each in changes:
        if each.form == "whole":
            found[:] = each.payload
        elif len(each.payload):
            target.scattering(each.positions, each.form, each.payload).write()  # type: ignore[arg-type]
    assert (found == bits[-1]).all()


def test_what_changes_bits_adds_up() -> None:
    base, middle, last = (np.full(SIZE, number, np.uint16) for number in (1, 2, 4))
    one = Changes.of(xor_code(base, middle), SIZE, BF16)
    both = composed([one], Changes.of(xor_code(middle, last), SIZE, BF16), BF16)
    assert [each.form for each in both] == ["xor"]
    assert (both[0].payload == 1 ^ 4).all()
    steps = Changes("steps", np.array([3]), np.array([1]))
    with pytest.raises(DataError, match="it comes whole"):
        composed([one], steps, BF16)


def test_steps_do_not_meet_what_changes_bits_behind_other_steps() -> None:
    steps = Changes("steps", np.array([1]), np.array([1]))
    bits = Changes("xor", np.array([3]), np.array([5], np.uint16))
    both = composed([steps], bits, BF16)
    with pytest.raises(DataError, match="it comes whole"):
        composed(both, Changes("steps", np.array([3]), np.array([1])), BF16)
