"""all_reduce and broadcast of tensors on devices: as of those on the CPU, to the last bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from device_groups import (
    BITS,
    DEVICES,
    always,
    assert_same_bits,
    group_in_mode,
    operations,
    path_of,
    staged_group,
)
from ranks import Ranks

from sparsewire.device.choice import SMALLEST
from sparsewire.device.path_cost import Path
from sparsewire.errors import MismatchError

DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64"]
DENSITIES = [0.0, 0.01, 0.1, 0.5, 1.0]
# Around a block, a chunk, and the size from which blocks are looked for; with a tail and without.
SIZES = [0, 1, 255, 256, 257, 65_535, SMALLEST, SMALLEST + 1, 200_000]
PATHS = [Path.PACKED, Path.DENSE]

pytestmark = pytest.mark.parametrize("device", DEVICES)


def blocks(size: int, dtype: torch.dtype, density: float) -> torch.Tensor:
    """Random blocks of 256 that are not zero; other numbers and other blocks on each rank."""
    torch.manual_seed(17 + dist.get_rank())
    values = (torch.randn(size) * 8).to(dtype)
    named = torch.rand(-(-size // 256)) < density
    values[~named.repeat_interleave(256)[:size]] = 0
    return values


def with_odd_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """NaN with a payload on rank 0, infinities, -0.0 alone in a block and beside others, tiny."""
    if tensor.is_floating_point() and tensor.numel() > 2000:
        view, rank = tensor.view(BITS[tensor.element_size()]), dist.get_rank()
        tensor[256:512] = -0.0
        tensor[600], tensor[601] = -0.0, 1.0
        view[1024:1280] = 0
        view[1030] = 1  # The smallest subnormal number is not zero.
        if rank == 0:
            tensor[1500] = float("nan")
            view[1500] += 3
            tensor[1501] = float("inf")
    return tensor


def reduced(tensor: torch.Tensor, op: str = "SUM", group: Any = None) -> torch.Tensor:
    dist.all_reduce(tensor, getattr(dist.ReduceOp, op), group=group)
    return tensor


def reduces_as_on_the_cpu(
    device: str, path: Path, dtype: torch.dtype, sizes: list[int], densities: list[float]
) -> None:
    cases = [
        (with_odd_numbers(blocks(size, dtype, density)), op)
        for size in sizes
        for density in densities
        for op in ("SUM", "AVG" if dtype.is_floating_point else "MAX")
    ]
    expected = [reduced(tensor.clone(), op) for tensor, op in cases]
    with always(path), staged_group(device) as group:
        actual = [reduced(tensor.clone().to(device), op, group) for tensor, op in cases]
        assert operations(group) >= len(cases)
    for one, other in zip(actual, expected, strict=True):
        assert_same_bits(one, other)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_and_densities(ranks: Ranks, device: str, dtype: str, path: Path) -> None:
    sizes = [100_001]
    ranks.run(reduces_as_on_the_cpu, device, path, getattr(torch, dtype), sizes, DENSITIES)


@pytest.mark.parametrize("path", PATHS)
def test_sizes(ranks: Ranks, device: str, path: Path) -> None:
    ranks.run(reduces_as_on_the_cpu, device, path, torch.float32, SIZES, [0.1])


def sends_little(device: str) -> None:
    size = 1_000_000
    with always(Path.PACKED), staged_group(device) as group:
        reduced(torch.zeros(size, device=device), group=group)
        communicator = path_of(group).communicator
        before = communicator.stats()["bytes_sent"]
        tensor = torch.zeros(size, device=device)
        tensor[256 * dist.get_rank()] = 1
        reduced(tensor, group=group)
        # Three blocks here and there, and what ranks say of empty chunks.
        assert communicator.stats()["bytes_sent"] - before < 16_384


def test_zeros_are_not_sent(ranks: Ranks, device: str) -> None:
    ranks.run(sends_little, device)


def layouts(device: str, path: Path) -> None:
    """Layouts may differ between ranks."""
    rank = dist.get_rank()
    whole = blocks(2 * SMALLEST, torch.float32, 0.1)
    with always(path), staged_group(device) as group:
        memory = whole.clone().to(device)
        view = memory[::2] if rank == 1 else memory[: whole.numel() // 2]
        expected = view.clone().cpu()
        reduced(view, group=group)
        if rank == 1:
            assert_same_bits(memory[1::2], whole[1::2])
    assert_same_bits(view, reduced(expected))

    square = blocks(SMALLEST, torch.float32, 0.5).reshape(256, -1)
    with always(path), staged_group(device) as group:
        turned = square.clone().to(device).t()
        reduced(turned, group=group)
    assert_same_bits(turned, reduced(square.t().contiguous()))


@pytest.mark.parametrize("path", PATHS)
def test_layouts(ranks: Ranks, device: str, path: Path) -> None:
    ranks.run(layouts, device, path)


def autograd(device: str, path: Path) -> None:
    size = dist.get_world_size()
    with always(path), staged_group(device) as group:
        with torch.inference_mode():
            inference = torch.ones(SMALLEST, device=device)
            reduced(inference, group=group)
        assert inference.eq(size).all()
        parameter = torch.ones(SMALLEST, device=device, requires_grad=True)
        version = parameter._version
        reduced(parameter.detach(), group=group)
        assert parameter.eq(size).all()
        # As NCCL, which writes behind autograd's back.
        assert parameter._version == version


@pytest.mark.parametrize("path", PATHS)
def test_autograd_does_not_notice(ranks: Ranks, device: str, path: Path) -> None:
    ranks.run(autograd, device, path)


def coalesced(device: str) -> None:
    tensors = [blocks(SMALLEST * (i + 1), torch.float32, 0.1) for i in range(3)]
    expected = [reduced(tensor.clone()) for tensor in tensors]
    with staged_group(device) as group:
        actual = [tensor.clone().to(device) for tensor in tensors]
        dist.all_reduce_coalesced(actual, group=group)
    for one, other in zip(actual, expected, strict=True):
        assert_same_bits(one, other)


def test_coalesced(ranks: Ranks, device: str) -> None:
    ranks.run(coalesced, device)


def broadcasts(device: str) -> None:
    sizes, root = [0, 1, 5, 1000, 100_001], 1
    tensors = [blocks(size, torch.float32, 0.3) for size in sizes]
    tensors += [torch.full((5,), dist.get_rank(), dtype=torch.uint8)]
    tensors += [torch.full((3, 3), dist.get_rank(), dtype=torch.complex64).t()]
    tensors += [torch.arange(8.0)[::2] + dist.get_rank(), torch.tensor([True, False])]
    tensors[2][3] = -0.0
    expected = [tensor.clone() for tensor in tensors]
    for tensor in expected:
        dist.broadcast(tensor, root)
    with staged_group(device) as group:
        actual = [tensor.clone().to(device) for tensor in tensors]
        for tensor in actual:
            dist.broadcast(tensor, root, group=group)
        assert operations(group) >= len(tensors)
    for one, other in zip(actual, expected, strict=True):
        # Dtypes without bits of their own, too.
        assert one.cpu().numpy().tobytes() == other.numpy().tobytes()


def test_broadcast(ranks: Ranks, device: str) -> None:
    ranks.run(broadcasts, device)


def embedding_gradient(rows: int, width: tuple[int, ...]) -> torch.Tensor:
    """Rows of a table; one of them twice, and none on rank 0."""
    rank = dist.get_rank()
    torch.manual_seed(rank)
    indices = torch.cat([torch.randint(rows, (rows // 10,)), torch.tensor([3, 3])])
    indices = indices[:0] if rank == 0 else indices
    return torch.sparse_coo_tensor(
        indices[None], torch.randn(len(indices), *width), (rows, *width), check_invariants=False
    )


def sparse_tensors(device: str) -> None:
    for width in ((), (64,), (4, 3)):
        mine = embedding_gradient(5000, width)
        expected = mine.clone()
        dist.all_reduce(expected)
        given = mine.clone()
        dist.broadcast(given, 1)
        root = mine.clone()
        dist.reduce(root, 2)
        everyones = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyones, mine)
        with staged_group(device) as group:
            actual = mine.clone().to(device)
            dist.all_reduce(actual, group=group)
            at_root = mine.clone().to(device)
            dist.reduce(at_root, 2, group=group)
            gathered = [torch.empty_like(actual) for _ in everyones]
            dist.all_gather(gathered, mine.clone().to(device), group=group)
            assert actual.device.type == device
            got = mine.clone().to(device)
            dist.broadcast(got, 1, group=group)
            assert operations(group) > 0
        at_root, root = at_root.coalesce(), root.coalesce()
        pairs = [(actual, expected), (got, given), (at_root, root)]
        for one, other in [*pairs, *zip(gathered, everyones, strict=True)]:
            assert one.is_coalesced()
            assert_same_bits(one.indices(), other.indices())
            assert_same_bits(one.values(), other.values())


def test_sparse_tensors(ranks: Ranks, device: str) -> None:
    ranks.run(sparse_tensors, device)


def mismatched(device: str) -> None:
    rank = dist.get_rank()
    with staged_group(device) as group:
        with pytest.raises(MismatchError):
            reduced(torch.ones(SMALLEST + (rank == 1), device=device), group=group)
        # Which leaves the group as it was.
        assert reduced(torch.ones(4, device=device), group=group).eq(dist.get_world_size()).all()


def test_sizes_that_differ(ranks: Ranks, device: str) -> None:
    ranks.run(mismatched, device)


def modes_differ() -> None:
    mode = "engine" if dist.get_rank() == 1 else "auto"
    with pytest.raises(MismatchError, match="SPARSEWIRE_CUDA alike"), group_in_mode(mode):
        pass


def test_modes_that_differ(new_ranks: Any, device: str) -> None:
    new_ranks(2).run(modes_differ)
