"""Operators on tensors make the codes of `sparsewire.compress`, to the last bit, and read them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from device_groups import needs_gpu
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparsewire.compress import (
    CompressError,
    Compressor,
    Draws,
    LowRank,
    TopK,
    as_contraction,
    parse,
)
from sparsewire.compress.marks import Blocks
from sparsewire.torch.operators import TensorOperator, tensor_form
from sparsewire.torch.operators.norms import norms

UNBIASED = [
    "identity",
    "natural",
    "qsgd:1",
    "qsgd:7",
    "qsgd:127:100",
    "ternary:inf",
    "ternary:1:64",
    "dithering:3:inf",
    "dithering:5:2:33",
    "natural-dithering:1:2:64",
    "natural-dithering:8:inf:300",
    "natural-dithering:127:1:1000",
    "rand-k:0.1",
    "block-random-k:3:100",
    "bernoulli:0.3:7",
    "bernoulli:0.5",
    "natural+rand-k:0.2",
    "qsgd:7+natural",
    "qsgd:3+bernoulli:0.5:10",
]
BIASED = [
    "top-k:0.01",
    "top-k:1.0",
    "block-top-k:0.1",
    "block-top-k:2:1000",
    "block-top-k:0.5:3",
    "span-top-k:4",
    "span-top-k:3:10",
    "span-top-k:1:65536",
    "rounded:2:4",
    "rounded:4",
    "rounded:8:513",
    "sign:256",
    "centroids:64",
    "centroids:7",
    "centroids:2000",
    "fp4",
    "fp4:3",
    "threshold:0.5",
    "block-threshold:14.5",
    "rounded:4:4+span-top-k:4",
    "rounded:8:4+block-top-k:0.3:7",
    "natural+top-k:0.1",
    "natural+threshold:1",
    "sign:8+block-top-k:2",
    "centroids:4+span-top-k:4:64",
]
SIZES = [1, 7, 255, 256, 1000, 65536, 70_001]
LARGEST = float(np.finfo(np.float32).max)


def made(name: str, size: int) -> Compressor:
    """The operator; a vector too short for K blocks or elements has one."""
    try:
        return parse(name, size)
    except CompressError:
        pytest.skip("no such operator for so short a vector")


def vector(kind: str, size: int) -> NDArray[np.float32]:
    """Normal numbers, or such that are hard on an operator."""
    rng = np.random.default_rng(size)
    x = rng.standard_normal(size).astype(np.float32)
    if kind == "equal":
        x = np.where(x > 0, np.float32(0.75), np.float32(-0.75))
    if kind == "zeros":
        x[rng.random(size) < 0.9] = -0.0
        x[: size // 2] = 0
    if kind == "tiny":
        x *= np.float32(1e-41)
    if kind == "wide":
        x *= np.exp2(rng.integers(-140, 60, size)).astype(np.float32)
    return x


KINDS = ["normal", "equal", "zeros", "tiny", "wide"]


def form_of(operator: Compressor) -> TensorOperator[Any]:
    form = tensor_form(operator)
    assert form is not None
    return form


def assert_same_code(operator: Compressor, x: NDArray[np.float32], device: str) -> None:
    """The message is that of the operator, and so is what is added of it."""
    form, on_device = form_of(operator), torch.from_numpy(x.copy()).to(device)
    code = form.draw(on_device, Draws(5))
    assert not code.is_refused.item()
    arrays = [part.cpu().numpy() for part in code.parts]
    own = form.code_of(arrays, code.known)
    assert operator.pack(own) == operator.encode(x, Draws(5))
    expected = np.ones(x.size, np.float32)
    operator.add(own, expected, -0.3)
    received = operator.read(operator.pack(own))
    brought = [torch.tensor(array).to(device) for array in form.arrays_of(received)]
    kept = form.kept_elements(own)
    for parts in (code.parts, brought):
        total = torch.ones(x.size, device=device)
        form.add(parts, total, -0.3, kept)
        assert total.cpu().numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", UNBIASED + BIASED)
def test_same_bits(name: str, size: int, kind: str) -> None:
    assert_same_code(made(name, size), vector(kind, size), "cpu")


@pytest.mark.parametrize("name", [*UNBIASED, "natural+span-top-k:4", "qsgd:7+sign:64"])
def test_contractions_have_the_same_bits(name: str) -> None:
    for kind in KINDS:
        operator = as_contraction(parse(name, 1000))
        assert_same_code(operator, vector(kind, 1000), "cpu")


@pytest.mark.parametrize("stride", [1, 16])
def test_sums_have_the_order_of_the_host(stride: int) -> None:
    """Halfway between two numbers, up to what is lost behind the first ones and not before them."""
    x = np.zeros(256, np.float32)
    x[::stride][:16] = [1, 2.0**-24, *[2.0**-54] * 14]
    blocks = Blocks(256, 256)
    expected = blocks.norms(x, 1)
    assert expected[0] == 1
    assert blocks.norms(x[::-1].copy(), 1)[0] > 1
    assert norms(torch.from_numpy(x), blocks, 1).numpy() == expected


@needs_gpu
@pytest.mark.parametrize("name", UNBIASED + BIASED)
def test_same_bits_on_cuda(name: str) -> None:
    for size in (1000, 70_001):
        for kind in KINDS:
            assert_same_code(made(name, size), vector(kind, size), "cuda")


@given(
    st.integers(0, 2**64 - 1),
    st.lists(
        st.floats(
            width=32, allow_nan=False, allow_infinity=False, max_value=2**100, min_value=-(2**100)
        ),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from(
        [
            "natural",
            "qsgd:7:9",
            "rounded:4:5",
            "span-top-k:2:5",
            "centroids:6",
            "fp4:6",
            "top-k:1",
            "dithering:9:inf",
            "natural-dithering:9:inf",
        ]
    ),
)
def test_any_vector_and_key(key: int, values: list[float], name: str) -> None:
    class Keyed(Draws):
        def key(self) -> int:
            return key

    x = np.array(values, np.float32)
    operator = parse(name, x.size)
    form = form_of(operator)
    code = form.draw(torch.from_numpy(x), Keyed(0))
    own = form.code_of([part.numpy() for part in code.parts], code.known)
    assert operator.pack(own) == operator.encode(x, Keyed(0))


@pytest.mark.parametrize("name", UNBIASED + BIASED)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_refused(name: str, bad: float) -> None:
    x = vector("normal", 5000)
    x[4321] = bad
    assert form_of(parse(name, x.size)).draw(torch.from_numpy(x), Draws(0)).is_refused.item()


@pytest.mark.parametrize(
    "name", ["natural", "qsgd:7", "rand-k:0.5", "natural+rand-k:1", "qsgd:7+natural"]
)
def test_what_is_too_large_is_refused(name: str) -> None:
    x = np.full(4, LARGEST, np.float32)
    operator = parse(name, x.size)
    with pytest.raises(CompressError):
        operator.encode(x, Draws(0))
    assert form_of(operator).draw(torch.from_numpy(x), Draws(0)).is_refused.item()


class Own(TopK):
    """May do anything."""


WITHOUT_FORM = {
    "low rank": LowRank(100, 1),
    "a class of a user's own": Own(100, 1),
    "a mixture": parse("0.5*natural|0.5*identity", 100),
    "cosines": parse("dct-top-k:4:8", 1000),
    "what shows": parse("visible", 1000),
    "ratios": parse("block-top-k-ratio:1", 1000),
    "a mean of many": parse("sign", 5000),
    "a norm of many": parse("ternary", 5000),
    "a norm of another power": parse("dithering:3:3", 100),
    "float64": parse("natural", 100, np.float64),
    "one of two": parse("natural+sign", 5000),
    "one of two that keep": parse("sign+top-k:4000", 5000),
    "one that is scaled": as_contraction(parse("ternary", 5000)),
}


@pytest.mark.parametrize("which", WITHOUT_FORM)
def test_others_have_no_form(which: str) -> None:
    assert tensor_form(WITHOUT_FORM[which]) is None


def test_a_code_that_stands_for_what_is_not_finite_is_malformed() -> None:
    operator = parse("rand-k:1", 10)
    message = operator.draw(np.ones(10, np.float32), Draws(0))
    message.values[:] = LARGEST
    with pytest.raises(CompressError, match="not finite"):
        form_of(operator).arrays_of(message)
