"""Whether copies run beside the backward pass of DDP, from a trace, and what the couriers cost."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from job import courier_seconds, end, parser_of, report, start, synchronize
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 3
LEAST_OVERLAP = 0.5
MOST_OF_A_CORE = 0.1
Spans = list[tuple[float, float]]


def union(spans: Spans) -> Spans:
    """The same time, in spans that do not touch, in order."""
    merged: Spans = []
    for begin, end_ in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end_))
        else:
            merged.append((begin, end_))
    return merged


def common(some: Spans, others: Spans) -> float:
    """How long both go on at once."""
    return sum(
        max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in union(some) for b in union(others)
    )


def overlap(events: list[dict[str, Any]]) -> float | None:
    """The share of the copies' time in which the backward pass computed; None without copies."""
    copies = spans(e for e in events if crosses(e))
    total = sum(end_ - begin for begin, end_ in union(copies))
    return common(copies, spans(computing(events))) / total if total else None


def crosses(event: dict[str, Any]) -> bool:
    """Whether it is a copy between host and device; those inside the device are DDP's too."""
    ways = ("DtoH", "HtoD")
    return event.get("cat") == "gpu_memcpy" and any(way in event["name"] for way in ways)


def computing(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The kernels of the model. Those that mark and pack blocks run in streams of their own."""
    kernels = [event for event in events if event.get("cat") == "kernel"]
    # The longest one multiplies matrices, and autograd stays in that stream.
    longest = max(kernels, key=lambda event: event["dur"], default=None)
    return [event for event in kernels if longest and stream(event) == stream(longest)]


def stream(event: dict[str, Any]) -> Any:
    """What the event ran in."""
    return event["args"]["stream"]


def spans(events: Iterable[dict[str, Any]]) -> Spans:
    """When the events went on."""
    return [(event["ts"], event["ts"] + event["dur"]) for event in events]


def traced(profile: Any) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--backend", default="sparsewire")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=8192)
    given = parser.parse_args()
    device = start(given.device, given.backend)
    layers = [nn.Linear(given.width, given.width) for _ in range(given.layers)]
    model = DistributedDataParallel(nn.Sequential(*layers).to(device))
    batch = torch.randn(given.batch, given.width, device=device)

    def step() -> None:
        model(batch).square().mean().backward()
        synchronize(device)

    step()
    couriers, begin = courier_seconds(), time.perf_counter()
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(STEPS):
            step()
    seconds = time.perf_counter() - begin
    share = overlap(traced(profile))
    of_a_core = (courier_seconds() - couriers) / seconds
    figures = {"backend": given.backend, "step_s": seconds / STEPS}
    report(**figures, copies_beside_backward=share, couriers_of_a_core=of_a_core)
    if device.type == "cuda" and given.backend == "sparsewire":
        assert share is not None, "the trace has no copies"
        assert share >= LEAST_OVERLAP, (
            f"only {share:.0%} of the copies ran beside the backward pass"
        )
        assert of_a_core < MOST_OF_A_CORE, f"couriers took {of_a_core:.0%} of a core"
    end()


if __name__ == "__main__":
    main()
