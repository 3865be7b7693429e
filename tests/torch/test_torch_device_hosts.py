"""Several GPUs a host: reduced inside the host first. Gloo stands in for NCCL, ranks for hosts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from device_double import cpu_as_device
from device_groups import always, assert_same_bits, double, group_in_mode, path_of, staged_group
from lost_rank import SURVIVED, assert_others_survived, await_others
from ranks import Ranks
from torch.utils._python_dispatch import _disable_current_modes

import sparsewire
from sparsewire.device.choice import SMALLEST
from sparsewire.device.path_cost import Path, Sample, Speeds, predict
from sparsewire.torch.calls.forwarding import InnerBackends, _gloo
from sparsewire.torch.device import host_level
from sparsewire.torch.device.host_level import Layout, layout_of

NewRanks = Callable[..., Ranks]
PATHS = [Path.PACKED, Path.DENSE]


def test_layouts() -> None:
    assert [layout_of([7, 7, 9, 9], rank) for rank in range(4)] == [
        Layout(0, 0, 2, 2),
        Layout(0, 1, 2, 2),
        Layout(1, 0, 2, 2),
        Layout(1, 1, 2, 2),
    ]
    # Ranks of a host need not be neighbours.
    assert layout_of([5, 6, 5, 6, 5, 6], 3) == Layout(1, 1, 2, 3)
    for hosts in ([1], [1, 1], [1, 2, 3], [1, 1, 2], [1, 2, 2, 2]):
        assert layout_of(hosts, 0) is None


def test_levels_are_cheaper_where_hosts_are_fast() -> None:
    flat = Speeds(1e-10, 1e-10, 8e-9)
    levels = flat._replace(places=4.0, host_s=1e-11)
    for path in PATHS:
        figures = 100_000_000, 8, Sample(0.05, 0.3)
        assert predict(path, *figures, levels) < predict(path, *figures, flat)
    slow = levels._replace(host_s=1e-6)
    assert predict(Path.DENSE, 100_000_000, 8, Sample(1, 1), slow) > 100


def at_once(call: Callable[..., Any], *args: Any) -> Any:
    double().current(torch.device("cpu")).synchronize()
    with _disable_current_modes():
        return call(*args)


class InStream:
    """A backend whose collectives come after what is in the current stream, as NCCL's do."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._backend, name)
        return partial(at_once, call) if name.startswith("_") else call


@contextlib.contextmanager
def hosts_of_two() -> Iterator[None]:
    """Have every two neighbours take each other for a host, and gloo for NCCL."""
    patched: list[tuple[Any, str, Any]] = [
        (host_level, "host_identity", lambda: f"host {dist.get_rank() // 2}"),
        (InnerBackends, "nccl", lambda self, _: self.gloo),
        (InnerBackends, "make_nccl", lambda self, *where: InStream(_gloo(*where, self.timeout))),
    ]
    former = [getattr(owner, name) for owner, name, _ in patched]
    for owner, name, new in patched:
        setattr(owner, name, new)
    try:
        yield
    finally:
        for (owner, name, _), old in zip(patched, former, strict=True):
            setattr(owner, name, old)


def blocks(size: int, dtype: torch.dtype) -> torch.Tensor:
    """Small integers, exact in every order of summation."""
    torch.manual_seed(dist.get_rank())
    tensor = torch.randint(-4, 5, (size,)).to(dtype)
    tensor[(torch.rand(-(-size // 256)) < 0.8).repeat_interleave(256)[:size]] = 0
    return tensor


def reduces(path: Path) -> None:
    dtypes = [torch.float32, torch.bfloat16, torch.float64, torch.int64]
    for dtype in dtypes:
        for size in (SMALLEST, 3 * SMALLEST + 77):
            mine = blocks(size, dtype)
            for op in ("SUM", "AVG") if dtype.is_floating_point else ("SUM",):
                expected = mine.clone()
                dist.all_reduce(expected, getattr(dist.ReduceOp, op))
                with hosts_of_two(), always(path), staged_group("cpu", "auto") as group:
                    actual = mine.clone()
                    turned = mine[: size // 256 * 256].clone().view(256, -1).t()
                    for tensor in (actual, turned):
                        dist.all_reduce(tensor, getattr(dist.ReduceOp, op), group=group)
                    levels = path_of(group)._levels
                    assert levels.host.layout == Layout(
                        dist.get_rank() // 2, dist.get_rank() % 2, 2, 2
                    )
                    # It was a slice of each that went to the other host.
                    assert levels.peers.stats()["operations"] == 2
                assert_same_bits(actual, expected)
                assert_same_bits(turned.t().reshape(-1), expected[: turned.numel()])


@pytest.mark.parametrize("path", PATHS)
def test_all_reduce(new_ranks: NewRanks, path: Path) -> None:
    new_ranks(4).run(reduces, path)


def in_flight(path: Path) -> None:
    """Also with what goes past the levels: small tensors, COO tensors, and other collectives."""
    size = dist.get_world_size()
    with hosts_of_two(), always(path), staged_group("cpu", "auto") as group:
        tensors = [torch.full((SMALLEST + i % 3,), dist.get_rank() + 1.0) for i in range(40)]
        small, sparse = torch.ones(5), torch.eye(9).to_sparse()
        mixed = [*tensors[:10], sparse, *tensors[10:30], small, *tensors[30:]]
        works: list[Any] = [dist.all_reduce(each, group=group, async_op=True) for each in mixed]
        for work in reversed(works):
            work.wait()
        total = size * (size + 1) / 2
        assert all(each.eq(total).all() for each in tensors)
        assert small.eq(size).all()
        assert_same_bits(sparse.to_dense(), size * torch.eye(9))


@pytest.mark.parametrize("path", PATHS)
def test_many_in_flight(new_ranks: NewRanks, path: Path) -> None:
    new_ranks(4).run(in_flight, path)


def lost() -> str:
    with hosts_of_two(), always(Path.PACKED), staged_group("cpu", "auto") as group:
        tensor = torch.ones(4 * SMALLEST)
        dist.all_reduce(tensor, group=group)
        await_others()
        if dist.get_rank() == 3:
            raise SystemExit
        works = [dist.all_reduce(tensor, group=group, async_op=True) for _ in range(2)]
        for work in works:
            with pytest.raises(sparsewire.Error):
                work.wait()
    return SURVIVED


def destroyed_in_flight() -> None:
    with hosts_of_two(), always(Path.PACKED), cpu_as_device(str(dist.get_rank())):
        with group_in_mode("auto", destroys=False) as group:
            dist.all_reduce(torch.ones(SMALLEST), group=group)
        # Rank 0 waits for its neighbour, not for what the engine would end.
        is_first = dist.get_rank() == 0
        if is_first:
            work: Any = dist.all_reduce(torch.ones(SMALLEST), group=group, async_op=True)
        dist.barrier()
        dist.destroy_process_group(group)
        if is_first:
            with pytest.raises(sparsewire.Error, match="destroyed while this was in flight"):
                work.wait()


def test_a_group_that_is_destroyed_in_flight(new_ranks: NewRanks) -> None:
    new_ranks(4).run(destroyed_in_flight)


def test_a_rank_that_is_lost(new_ranks: NewRanks) -> None:
    assert_others_survived(new_ranks(4).outcomes(lost), lost=3)
