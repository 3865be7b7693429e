"""What is to be refused clearly: a device that is full on one rank, and a graph being captured.

A graph that is captured beside a transfer in flight is to be left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from job import end, parser_of, report, start, synchronize

import sparsewire
from sparsewire.device.staging import staging_of

ELEMENTS = 1 << 22


def error_of(call: Callable[[], Any]) -> str:
    """What a call raises of ours, as text; nothing where it raises nothing."""
    try:
        call()
    except sparsewire.Error as error:
        return str(error)
    return ""


def be_full(device: torch.device) -> None:
    """Have no memory left on this rank."""
    if device.type == "cpu":
        double: Any = staging_of(device).accelerator
        double.failing = MemoryError("the device is full")
        return
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)


def meet() -> None:
    """Over the store: an error ends what is on its way to other ranks, a barrier's end, too."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"here/{dist.get_rank()}", "")
    store.wait([f"here/{rank}" for rank in range(dist.get_world_size())])


def full(device: torch.device) -> None:
    """Every rank gets an Error that names the one; no pinned memory stays lent."""
    # Columns are copied before they are sent, for which there is no room.
    columns = torch.ones(ELEMENTS // 1024, 1024, device=device).t()
    dist.all_reduce(torch.ones(ELEMENTS, device=device))
    synchronize(device)
    meet()
    if dist.get_rank() == 1:
        be_full(device)
    text = error_of(lambda: dist.all_reduce(columns))
    assert "rank 1" in text, f"an error that does not name the rank: {text or 'none'}"
    staging = staging_of(device)
    lent = sum(way.pool.lent_bytes for way in (staging.down, staging.up))
    assert lent == 0, f"{lent} bytes of pinned memory are lent for ever"
    report(case="full", error=text, lent_bytes=lent)


def capture(device: torch.device) -> None:
    """A collective inside a graph is refused, and later ones go on."""
    if device.type == "cpu":
        return report(case="capture", left_out="there are no graphs on the CPU")
    x = torch.ones(ELEMENTS, device=device)
    dist.all_reduce(x)

    def in_a_graph() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            dist.all_reduce(x)

    text = error_of(in_a_graph)
    assert "captur" in text, f"a collective in a graph said: {text or 'nothing'}"
    return report(case="capture", error=text)


def beside(device: torch.device) -> None:
    """A graph that is captured while a transfer waits for another rank, and both are right."""
    if device.type == "cpu":
        return report(case="beside", left_out="there are no graphs on the CPU")
    x, y = torch.ones(ELEMENTS, device=device), torch.zeros(ELEMENTS, device=device)
    dist.all_reduce(torch.ones(ELEMENTS, device=device))
    synchronize(device)
    graph = torch.cuda.CUDAGraph()
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() > 0:
        store.wait(["captured"])
    work = dist.all_reduce(x, async_op=True)
    if dist.get_rank() == 0:
        with torch.cuda.graph(graph):
            y.add_(1)
        store.set("captured", "")
        graph.replay()
    work.wait()
    synchronize(device)
    assert x.eq(dist.get_world_size()).all(), "the sum is wrong"
    assert y.eq(dist.get_rank() == 0).all(), "the graph did not run as it was captured"
    return report(case="beside", elements=ELEMENTS)


def main() -> None:
    cases = {"full": full, "capture": capture, "beside": beside}
    parser = parser_of(__doc__)
    parser.add_argument("case", choices=cases)
    given = parser.parse_args()
    cases[given.case](start(given.device))
    if given.case != "full":
        end()  # After the other one the group is broken.


if __name__ == "__main__":
    main()
