"""Orders of streams, groups and ranks: calls that overlap, block streams, or are not for all."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from job import end, parser_of, report, sleep, start, synchronize

LARGE = 1 << 22
A_SECOND = 2e9
"""Cycles of a GPU in about so long."""


def two_calls(device: torch.device) -> dict[str, float]:
    """The first call's result does not wait for what comes behind it in the caller's stream."""
    x = torch.ones(LARGE, device=device)
    work = dist.all_reduce(x, async_op=True)
    sleep(device, A_SECOND)
    other = dist.all_reduce(x.clone(), async_op=True)
    begin = time.perf_counter()
    work.get_future().wait()
    waited = time.perf_counter() - begin
    assert waited < 0.5, f"the first of two calls took {waited} s: it waited for the second one"
    other.wait()
    return {"waited_s": waited}


def blocked_stream(device: torch.device) -> dict[str, float]:
    """A stream that waits for the first call does not keep the second from it."""
    x = torch.ones(LARGE, device=device)
    work = dist.all_reduce(x, async_op=True)
    if device.type == "cuda":
        work.block_current_stream()
    other = dist.all_reduce(x.clone(), async_op=True)
    work.wait()
    other.wait()
    synchronize(device)
    assert x.eq(dist.get_world_size()).all()
    return {}


def send_and_recv(device: torch.device) -> dict[str, float]:
    """Two of the ranks, while the others come to nothing."""
    x = torch.full((1000,), float(dist.get_rank()), device=device)
    if dist.get_rank() == 0:
        dist.send(x, 1)
    elif dist.get_rank() == 1:
        dist.recv(x, 0)
        synchronize(device)
        assert x.eq(0).all()
    else:
        time.sleep(5)
    return {}


def opposite_order(device: torch.device) -> dict[str, float]:
    """Two groups, whose calls come in another order on one rank; each wants all pinned memory."""
    groups = [dist.new_group(), dist.new_group()]
    for group in groups:
        dist.all_reduce(torch.ones(1000, device=device), group=group)
    order = (0, 1) if dist.get_rank() == 0 else (1, 0)
    elements = 5 * 10**7 if device.type == "cuda" else 10**5
    tensors = {i: torch.ones(elements, device=device) for i in order}
    works = [dist.all_reduce(tensors[i], group=groups[i], async_op=True) for i in order]
    for work in works:
        work.wait()
    assert all(each.eq(dist.get_world_size()).all() for each in tensors.values())
    return {}


def broadcasts(device: torch.device) -> dict[str, float]:
    """Of a size that is no multiple of anything, where the others are late."""
    turns = 3000 if device.type == "cuda" else 30
    for turn in range(turns):
        mask = torch.full((1001,), dist.get_rank() == 0, dtype=torch.bool, device=device)
        if dist.get_rank():
            sleep(device, 1e7)
        dist.broadcast(mask, 0)
        assert mask.all(), f"turn {turn}"
    return {"turns": turns}


CHECKS: dict[str, Callable[[torch.device], dict[str, float]]] = {
    each.__name__: each
    for each in (two_calls, blocked_stream, send_and_recv, opposite_order, broadcasts)
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("check", choices=CHECKS)
    given = parser.parse_args()
    device = start(given.device)
    # Connections first: what follows is timed, or not for all ranks.
    if given.check != "send_and_recv":
        dist.all_reduce(torch.ones(LARGE, device=device))
        synchronize(device)
    report(check=given.check, **CHECKS[given.check](device))
    end()


if __name__ == "__main__":
    main()
