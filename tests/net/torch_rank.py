"""One rank of test_torch_lab.py: runs what the engine serves and what the inner gloo serves."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist

import sparsewire.torch  # noqa: F401


def gathered(group: dist.ProcessGroup | None = None) -> list[float]:
    """The rank numbers of all members, by an all_gather, which is the inner group's."""
    mine = torch.tensor([float(dist.get_rank())])
    parts = [torch.zeros(1) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, mine, group=group)
    return [float(part) for part in parts]


def gathered_in_callback() -> list[float]:
    """The same from a callback of a future, where a nested group serves it."""
    work = dist.all_reduce(torch.ones(3), async_op=True)
    assert work is not None
    results: list[float] = work.get_future().then(lambda _: gathered()).wait()
    return results


def main() -> None:
    dist.init_process_group("sparsewire", timeout=timedelta(seconds=20))
    everyone = [float(rank) for rank in range(dist.get_world_size())]
    total = torch.full((4,), float(dist.get_rank()))
    dist.all_reduce(total)
    assert total.tolist() == [sum(everyone)] * 4
    assert gathered() == everyone
    assert gathered(dist.new_group()) == everyone
    assert gathered_in_callback() == everyone
    dist.destroy_process_group()
    print("served", flush=True)


if __name__ == "__main__":
    main()
