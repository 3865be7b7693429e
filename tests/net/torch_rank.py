"""One rank of test_torch_lab.py: runs what the engine serves and what the inner gloo serves.

It does so once with each choice of interfaces that users may set.
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist

import sparsewire.torch  # noqa: F401

INTERFACES = {
    "ours": {"SPARSEWIRE_IFNAME": "eth0"},
    "gloo": {"GLOO_SOCKET_IFNAME": "eth0"},
    "both": {"SPARSEWIRE_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "lo"},
    "neither": {},
}
NAMED = ("SPARSEWIRE_IFNAME", "GLOO_SOCKET_IFNAME")


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


def serve() -> None:
    dist.init_process_group("sparsewire", timeout=timedelta(seconds=20))
    everyone = [float(rank) for rank in range(dist.get_world_size())]
    total = torch.full((4,), float(dist.get_rank()))
    dist.all_reduce(total)
    assert total.tolist() == [sum(everyone)] * 4
    assert gathered() == everyone
    assert gathered(dist.new_group()) == everyone
    assert gathered_in_callback() == everyone
    dist.destroy_process_group()


def main() -> None:
    for port, (name, given) in enumerate(INTERFACES.items(), int(os.environ["MASTER_PORT"])):
        for variable in NAMED:
            os.environ.pop(variable, None)
        os.environ.update(given, MASTER_PORT=str(port))
        serve()
        print(name, flush=True)


if __name__ == "__main__":
    main()
