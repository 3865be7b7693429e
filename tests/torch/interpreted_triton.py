"""Checks of Triton's kernels in its interpreter, against torch's operations; a program of its own.

TRITON_INTERPRET must be set before it is imported. Prints a line of JSON: why each check failed.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparsewire.device.block_operations import Operations, TorchOperations, bits
from sparsewire.device.packing import Blocks, Packed
from sparsewire.device.triton_packing import TritonOperations

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES = [*FLOATS, torch.int32, torch.int64]
# The tiles of the kernels are 2048 elements: rows that fill some, a part of one, and one each.
WIDTHS = [1, 16, 256, 1024, 4096]

triton, plain = TritonOperations(), TorchOperations()


def rows_of(dtype: torch.dtype, width: int, count: int, density: float, seed: int) -> torch.Tensor:
    """Random bits, NaNs and subnormal numbers among them, in blocks that are not zero."""
    torch.manual_seed(seed)
    size = count * width * dtype.itemsize
    rows = torch.randint(0, 256, (size,), dtype=torch.uint8).view(dtype).view(count, width)
    kept = torch.rand(count) < density
    rows[~kept] = 0
    # What is not zero may be one element alone, or one bit of it.
    for row in (kept.nonzero().squeeze(1)[::2]).tolist():
        lone = bits(rows)[row, seed % width] & (1 << seed % (8 * dtype.itemsize - 1))
        rows[row] = 0
        bits(rows)[row, seed % width] = lone
    return rows


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.view(torch.uint8).equal(second.view(torch.uint8))


cases = given(
    dtype=st.sampled_from(DTYPES),
    width=st.sampled_from(WIDTHS),
    count=st.integers(0, 40),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 1 << 20),
)


@cases
@example(torch.float32, 256, 0, 0.0, 0)
@example(torch.float64, 4096, 1, 1.0, 62)
def marks(dtype: torch.dtype, width: int, count: int, density: float, seed: int) -> None:
    rows = rows_of(dtype, width, count, density, seed)
    found = triton.mark(rows)
    assert found.dtype is torch.bool
    assert found.equal(plain.mark(rows))


@given(st.sampled_from(FLOATS), st.integers(0, 255))
def edges(dtype: torch.dtype, column: int) -> None:
    smallest = torch.tensor(1, dtype=bits(torch.empty(1, dtype=dtype)).dtype).view(dtype)
    numbers = [-0.0, 0.0, float("nan"), smallest, -smallest, float("inf"), float("-inf")]
    rows = torch.zeros(len(numbers), 256, dtype=dtype)
    rows[0] = -0.0
    for row, number in enumerate(numbers):
        rows[row, column] = number
    assert triton.mark(rows).tolist() == [False, False, True, True, True, True, True]


@cases
def gathers(dtype: torch.dtype, width: int, count: int, density: float, seed: int) -> None:
    rows = bits(rows_of(dtype, width, count, 1.0, seed))
    indices = (torch.rand(count) < density).nonzero().squeeze(1)
    assert same_bits(triton.gather(rows, indices), plain.gather(rows, indices))


@cases
def fills(dtype: torch.dtype, width: int, count: int, density: float, seed: int) -> None:
    before = bits(rows_of(dtype, width, count, 1.0, seed))
    indices = (torch.rand(count) < density).nonzero().squeeze(1)
    indices = indices[torch.randperm(len(indices))]
    values = bits(rows_of(dtype, width, len(indices), 1.0, seed + 1))
    one, other = before.clone(), before.clone()
    triton.fill(one, indices, values)
    plain.fill(other, indices, values)
    assert same_bits(one, other)


@given(st.sampled_from(DTYPES), st.sampled_from([0, 1, 255, 256, 257, 3000]), st.floats(0, 1))
def tensors_with_a_tail(dtype: torch.dtype, size: int, density: float) -> None:
    """All of it, as a transfer uses it: packed, and put into memory full of other things."""
    torch.manual_seed(size)
    tensor = (torch.randn(size) * 9).round().to(dtype)
    tensor[torch.rand(size) >= density] = 0
    expected, target = packed_and_put(tensor, plain)
    packed, by_triton = packed_and_put(tensor, triton)
    assert packed.indices.equal(expected.indices)
    assert same_bits(packed.rows, expected.rows)
    assert same_bits(by_triton, target)


def packed_and_put(tensor: torch.Tensor, operations: Operations) -> tuple[Packed, torch.Tensor]:
    target = torch.full_like(tensor, 7)
    blocks, into = Blocks(tensor), Blocks(target)
    blocks._operations = into._operations = operations
    packed = blocks.pack()
    into.put(packed.indices, packed.rows, bits(blocks.tail))
    return packed, target


CHECKS: list[Callable[[], None]] = [marks, edges, gathers, fills, tensors_with_a_tail]


def outcome(check: Callable[[], None]) -> str:
    """Nothing, or why it failed."""
    try:
        settings(max_examples=40, deadline=None, derandomize=True, database=None)(check)()
    except BaseException:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    print(json.dumps({check.__name__: outcome(check) for check in CHECKS}))
