"""Means of what ranks sent: each form makes DIANA's step with the bits of a plain dense mean."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from simulated import SimulatedGroup
from torch import Tensor

from sparsewire.compress import Compressor, Draws, parse
from sparsewire.compress.message import Reader
from sparsewire.torch.hooks import DianaState, ErrorFeedbackState
from sparsewire.torch.hooks.means import DenseMean, LevelsMean, MarkedMean, Scratch, mean_of
from sparsewire.torch.hooks.sent import Coded, Exact, Record, Sent

ELEMENTS = 3000
RANKS = 3
RATE = 0.3


def vector(seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(seed))


def sent_by_ranks(operator: Compressor, scale: float = 1.0) -> list[Sent]:
    draws = [Draws(0, rank, "x") for rank in range(RANKS)]
    codes = [operator.code(vector(rank, scale), each) for rank, each in enumerate(draws)]
    return [Coded(operator, code) for code in codes]


@pytest.mark.parametrize("make", [ErrorFeedbackState, DianaState])
@pytest.mark.parametrize(
    "name", ["block-top-k:0.1:16", "span-top-k:4:16", "rounded:4:4+span-top-k:4:16", "qsgd:7"]
)
def test_operators_of_float64_take_what_those_of_float32_do(make: Any, name: str) -> None:
    if make is DianaState and parse(name, ELEMENTS).is_biased:
        pytest.skip("DIANA takes unbiased operators only")
    parameter, group = torch.zeros(ELEMENTS), cast(Any, SimulatedGroup(0, 1))
    results = []
    for dtype in (np.float32, np.float64):
        state = make(group, lambda size, dtype=dtype: parse(name, size, dtype))
        state.min_elements = 0
        for step in range(3):
            gradient = vector(step)
            sent = state.encode(parameter, gradient)
            record = Record.read(Reader(sent.record().encode()))
            assert not record.is_exact
            state.settle(parameter, gradient, sent, [record])
        results.append(gradient)
    # Random choices of different bits are close where what is added is nearly the same.
    is_random = name == "qsgd:7"
    assert torch.allclose(*results, rtol=1e-5, atol=1e-6) or is_random
    assert torch.isfinite(results[1]).all()


def steps(mean: DenseMean | MarkedMean) -> list[Tensor]:
    shift, mean_shift, gradient = vector(10), vector(11), vector(12)
    mean.follow(shift, mean_shift, gradient, RATE)
    return [shift, mean_shift, gradient]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("qsgd:7", LevelsMean),
        ("ternary:inf:100", LevelsMean),
        ("dithering:3:2", LevelsMean),
        ("natural-dithering:4:inf:64", LevelsMean),
        ("rand-k:0.1", MarkedMean),
        ("natural", DenseMean),
        ("identity", DenseMean),
    ],
)
@pytest.mark.parametrize("rank", range(RANKS))
def test_all_forms_make_the_same_step(name: str, form: type, rank: int) -> None:
    sent = sent_by_ranks(parse(name, ELEMENTS))
    mean = mean_of(sent, rank, ELEMENTS, Scratch())
    assert type(mean) is form
    assert mean.is_finite(torch.float32)
    plain = DenseMean(sent, sent[rank], ELEMENTS, Scratch())
    for found, expected in zip(steps(mean), steps(plain), strict=True):
        assert torch.equal(found, expected)


def test_what_is_exact_among_codes_is_added_like_them() -> None:
    sent = [*sent_by_ranks(parse("qsgd:7", ELEMENTS))[1:], Exact(vector(0).numpy())]
    mean = mean_of(sent, 2, ELEMENTS, Scratch())
    assert type(mean) is DenseMean
    expected = sum(each.operator.reconstruct(each.code) for each in sent[:2]) + sent[2].vector
    assert np.array_equal(steps(mean)[2].numpy(), (vector(11).numpy() + expected / np.float32(3)))


@pytest.mark.parametrize("name", ["qsgd:7", "natural-dithering:4:inf:64"])
@pytest.mark.parametrize(
    ("dtype", "scale", "finite"),
    [
        (torch.float16, 1.0, True),
        # Norms are beyond the type, and means are not.
        (torch.float16, 1e4, True),
        (torch.float16, 1e6, False),
        (torch.bfloat16, 1e6, True),
        (torch.float32, 1e30, True),
    ],
)
def test_whether_a_mean_is_finite_in_its_type(
    name: str, dtype: torch.dtype, scale: float, finite: bool
) -> None:
    sent = sent_by_ranks(parse(name, ELEMENTS), scale)
    assert mean_of(sent, 0, ELEMENTS, Scratch()).is_finite(dtype) is finite
    assert DenseMean(sent, sent[0], ELEMENTS, Scratch()).is_finite(dtype) is finite


def test_a_sum_beyond_float32_is_not_finite() -> None:
    operator = parse("ternary:inf", ELEMENTS)
    huge = np.full(ELEMENTS, 3e38, np.float32)
    sent: list[Sent] = [Coded(operator, operator.code(huge, Draws(0, 0, "x")))] * RANKS
    assert not mean_of(sent, 0, ELEMENTS, Scratch()).is_finite(torch.float32)
