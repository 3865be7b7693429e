"""Blocks that are not zero are found, packed and put back as NumPy would, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from device_groups import DEVICES, assert_same_bits, bits

from sparsewire.device.packing import BLOCK, Blocks
from sparsewire.device.words import as_words

DTYPES = ["float16", "bfloat16", "float32", "float64", "int32", "int64"]
SIZES = [0, 1, 255, 256, 257, 1000, 65_536]

pytestmark = pytest.mark.parametrize("device", DEVICES)


def random_blocks(size: int, dtype: torch.dtype, density: float) -> torch.Tensor:
    torch.manual_seed(size)
    tensor = (torch.randn(size) * 9).round().to(dtype)
    named = torch.rand(-(-size // BLOCK)) < density
    tensor[~named.repeat_interleave(BLOCK)[:size]] = 0
    return tensor


def put_back(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """What becomes of memory full of other things when the tensor's blocks are put there."""
    packed, tail = Blocks(tensor.to(device)).pack(), Blocks(tensor.to(device)).tail
    target = torch.full_like(tensor, 7, device=device)
    Blocks(target).put(packed.indices, packed.rows, bits(tail).to(device))
    return target


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_packed_is_what_is_not_zero(device: str, dtype: str, size: int) -> None:
    for density in (0.0, 0.1, 1.0):
        tensor = random_blocks(size, getattr(torch, dtype), density)
        whole = tensor[: size // BLOCK * BLOCK].view(-1, BLOCK) if size >= BLOCK else tensor[:0]
        expected = [i for i, row in enumerate(whole.double().tolist()) if any(row)]
        packed = Blocks(tensor.to(device)).pack()
        assert packed.indices.tolist() == expected
        for index, row in zip(expected, packed.rows, strict=True):
            assert_same_bits(row, bits(whole[index]))
        assert_same_bits(put_back(tensor, device), tensor)


def test_negative_zeros_are_zero_and_nothing_else_is(device: str) -> None:
    tensor = torch.zeros(5 * BLOCK)
    tensor[:BLOCK] = -0.0
    tensor[BLOCK + 3] = float("nan")
    tensor.view(torch.int32)[2 * BLOCK] = 1  # The smallest subnormal number.
    tensor[4 * BLOCK - 1] = float("-inf")
    packed = Blocks(tensor.to(device)).pack()
    assert packed.indices.tolist() == [1, 2, 3]


def test_a_nan_keeps_its_payload(device: str) -> None:
    for dtype, number in ((torch.int16, 0x7D01), (torch.int32, 0x7FA00001), (torch.int64, -1)):
        tensor = torch.zeros(BLOCK, dtype=dtype)
        tensor[9] = number
        kind = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}[dtype.itemsize]
        assert_same_bits(put_back(tensor.view(kind), device), tensor)


def test_samples_are_of_the_same_blocks_whatever_they_hold(device: str) -> None:
    tensor = torch.zeros(1000 * BLOCK)
    tensor[: 100 * BLOCK] = 1
    marks = Blocks(tensor.to(device)).sample(256).cpu()
    assert marks.dtype == torch.int32
    assert 0.02 < marks.float().mean() < 0.25
    assert Blocks(torch.ones(1000 * BLOCK, device=device)).sample(256).eq(1).all()
    # An even stride must not hide them: every other block.
    tensor.view(-1, BLOCK)[:] = (torch.arange(1000) % 2)[:, None].float()
    assert 0.3 < Blocks(tensor.to(device)).sample(256).float().mean() < 0.7


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.complex64, torch.bool])
def test_words_hold_every_byte(device: str, size: int, dtype: torch.dtype) -> None:
    tensor = torch.arange(size).to(dtype).to(device)
    words, memory = as_words(tensor)
    assert words.dtype == torch.int32
    assert memory.dtype == dtype
    before = tensor.cpu().clone()
    words.bitwise_not_()
    assert memory.cpu().view(torch.uint8).tolist() == [
        255 - byte for byte in before.view(torch.uint8).tolist()
    ]


def test_words_of_what_is_not_in_one_piece_are_a_copy(device: str) -> None:
    whole: Any = torch.arange(12, dtype=torch.float16, device=device)
    for tensor in (whole[::2], whole[1:5], whole[:4].view(2, 2).t()):
        words, memory = as_words(tensor)
        np.testing.assert_array_equal(memory.cpu().numpy(), tensor.cpu().numpy())
        assert words.data_ptr() != tensor.data_ptr() or tensor.storage_offset() % 2 == 0
