"""Top-k records as the hook makes them: the largest elements, and not a bit is lost."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparsewire._core import TopK

BITS = [32, 8, 4, 2]


def compressed(format_: TopK, gradient: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    """What is sent of gradient + residual, as the other ranks read it; changes the residual."""
    size = gradient.numel()
    records = torch.zeros(format_.bytes(size), dtype=torch.uint8)
    format_.compress(gradient.data_ptr(), residual.data_ptr(), size, records.data_ptr())
    sent = torch.full((size,), torch.nan)
    format_.mean(records.data_ptr(), records.numel(), 1, size, sent.data_ptr())
    return sent


def largest_of_buckets(values: torch.Tensor, bucket: int, k: int) -> torch.Tensor:
    """The values that are among the k largest of their bucket, zeros elsewhere."""
    kept = torch.zeros_like(values)
    for part, kept_part in zip(values.split(bucket), kept.split(bucket), strict=True):
        where = part.abs().topk(min(k, len(part))).indices
        kept_part[where] = part[where]
    return kept


def quantised(values: torch.Tensor, bucket: int, bits: int) -> torch.Tensor:
    """Each bucket's values as multiples of the power of two that just holds the largest."""
    if bits == 32:
        return values
    levels = 2 ** (bits - 1) - 1
    parts = []
    for part in values.split(bucket):
        step = 2.0 ** torch.ceil(torch.log2(part.abs().max().double() / (levels + 0.5))).float()
        parts.append((part / step).round() * step if part.any() else part)
    return torch.cat(parts)


@given(
    bits=st.sampled_from(BITS),
    seed=st.integers(0, 2**20),
    size=st.integers(1, 3000),
    bucket=st.integers(1, 700),
    k=st.integers(1, 40),
    spread=st.integers(0, 12),
)
def test_sends_the_largest_and_keeps_the_rest(
    bits: int, seed: int, size: int, bucket: int, k: int, spread: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    k = min(k, bucket)
    format_ = TopK(bucket, k, bits)
    residual = torch.zeros(size)
    for _ in range(3):
        gradient = torch.randn(size, generator=generator)
        gradient *= 2.0 ** torch.randint(-spread, spread + 1, (size,), generator=generator)
        owed = residual + gradient
        sent = compressed(format_, gradient, residual)
        expected = quantised(largest_of_buckets(owed, bucket, k), bucket, bits)
        assert sent.equal(expected)
        # In float64 both sums are exact: not a bit is lost.
        assert (sent.double() + residual.double()).equal(owed.double())


@pytest.mark.parametrize("bits", BITS)
def test_extreme_numbers(bits: int) -> None:
    highest, lowest = torch.finfo(torch.float32).max, 2.0**-149
    for values in ([highest, -highest], [highest, 1.0], [lowest, -lowest], [-0.0, lowest], [0.0]):
        owed, residual = torch.tensor(values), torch.zeros(len(values))
        sent = compressed(TopK(512, 2, bits), owed, residual)
        assert sent.isfinite().all()
        assert (sent.double() + residual.double()).equal(owed.double())


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_what_is_not_finite_is_sent_and_forgotten(bits: int, value: float) -> None:
    residual = torch.zeros(600)
    gradient = torch.ones(600)
    gradient[3] = value
    sent = compressed(TopK(512, 4, bits), gradient, residual)
    assert not sent[3].isfinite()
    assert sent[512:].isfinite().all()
    assert residual.isfinite().all()
