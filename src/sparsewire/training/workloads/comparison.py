"""`sparsewire bench workload`: measures workloads on a cluster, method against method.

What it finds is a table for each workload, and all numbers.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from sparsewire.experiment.cluster import Cluster
from sparsewire.experiment.crew import Event, module_argv, run_workers
from sparsewire.experiment.progress import Move, bars
from sparsewire.experiment.report import Column, Report, number, table
from sparsewire.lab import Lab
from sparsewire.measure.wire_limit import ring_bytes
from sparsewire.training.trial import Averaging
from sparsewire.training.workloads.catalogue import WORKLOADS
from sparsewire.training.workloads.measure import Density, Order, Steps

_ITEM_BYTES = 4
FEEDBACK = "feedback/block-top-k:0.01"
"""The hook that "feedback" stands for here: 1% of the blocks."""
_MODES = {
    "training": "real steps, computed by the processors that the ranks share",
    "gradients": "recorded gradients, replayed beside a stated time of computation",
}


@dataclass(frozen=True)
class Measured:
    """One method on one workload; the first method is what others are compared with."""

    method: str
    steps: Steps
    speedup: float
    sent_bytes: float
    """Of a step and rank; computed for a dense ring where nobody counts."""

    @property
    def step_s(self) -> float:
        """Median."""
        return median(self.steps.seconds)


@dataclass(frozen=True)
class Found:
    """Everything of one workload."""

    name: str
    parameters: int
    density: Density
    methods: list[Measured]


def workload_report(orders: Sequence[Order], cluster: Cluster) -> Report:
    """Measure all, one after the other, with a progress bar; raises what `measured` does."""
    with bars() as move:
        found = [measured(order, cluster, move) for order in orders]
    record = {
        "benchmark": "workload",
        "cluster": asdict(cluster),
        "order": {name: value for name, value in asdict(orders[0]).items() if name != "name"},
        "workloads": [_recorded(each, orders[0]) for each in found],
    }
    shown = (part for each in found for part in _shown(each))
    return Report([_describe(orders[0], cluster), *shown], record)


def measured(order: Order, cluster: Cluster, move: Move) -> Found:
    """Run one workload; raises LabError or WorkerFailed where that fails."""
    if cluster.emulated:
        order = replace(order, interface=Lab.interface)
    recorded: Event = {}
    of_methods: dict[str, Steps] = {}

    def follow(event: Event) -> None:
        kind = event.pop("event")
        if kind == "recorded":
            recorded.update(event)
        elif kind == "measured":
            of_methods[event["method"]] = Steps(**event["steps"])
        else:
            move(order.name, *_progress(order, event), event["method"])

    move(order.name, 0, 1, "recording gradients")
    argv = module_argv("sparsewire.training.workloads.worker", json.dumps(asdict(order)))
    with tempfile.TemporaryDirectory(prefix="sparsewire-workload-") as logs, cluster.open() as site:
        run_workers(site, argv, Path(logs), follow)
    parameters = recorded["parameters"]
    methods = list(_compared(of_methods, ring_bytes(_ITEM_BYTES * parameters, cluster.ranks)))
    return Found(order.name, parameters, Density(**recorded["density"]), methods)


def _progress(order: Order, event: Event) -> tuple[int, int]:
    each = order.warmup + order.steps
    done = order.methods.index(event["method"]) * each + event["done"]
    return done, each * len(order.methods)


def _compared(of_methods: dict[str, Steps], ring: float) -> Iterator[Measured]:
    first = median(next(iter(of_methods.values())).seconds)
    for method, steps in of_methods.items():
        sent = ring if steps.sent_bytes is None else steps.sent_bytes
        yield Measured(method, steps, first / median(steps.seconds), sent)


def resolved(method: str) -> str:
    """The method as ranks are told it; raises ValueError for one that is not known."""
    return str(Averaging.parse(FEEDBACK if method == "feedback" else method))


def _recorded(found: Found, order: Order) -> dict[str, Any]:
    workload = WORKLOADS[found.name]
    methods = [{**asdict(each), "step_s": each.step_s} for each in found.methods]
    return {
        **asdict(found),
        "methods": methods,
        "scaled": workload.scaled if order.size == "here" else None,
        "shape": asdict(workload.sizes[order.size]),
        "published_density": workload.published_density,
    }


def _describe(order: Order, cluster: Cluster) -> str:
    """Say where the numbers come from."""
    lines = [f"{cluster}; size: {order.size}; {_MODES[order.mode]}."]
    if order.mode == "gradients":
        lines.append(
            f"Computation is stated: {order.compute_s * 1e3:g} ms of a step, in which the "
            "processors are free, as beside a GPU."
        )
    lines.append("Steps are medians of the slowest rank; alone: without communication.")
    return "\n".join(lines)


def _shown(found: Found) -> Iterator[str | Table]:
    """How much of the gradients is not zero, and a row for each method."""
    workload, density = WORKLOADS[found.name], found.density
    yield (
        f"\n{workload.title}, {found.parameters:,} parameters. Not zero in a rank's gradient: "
        f"{density.element:.2%} of the elements (published: {workload.published_density:.2%}), "
        f"{density.block:.2%} of the blocks; in all ranks' together: {density.union_element:.2%}, "
        f"{density.union_block:.2%}."
    )
    yield table(_COLUMNS, found.methods)


def _loss(measured: Measured) -> str:
    return f"{measured.steps.losses[-1]:.5f}" if measured.steps.losses else "-"


_COLUMNS = (
    Column[Measured]("method", lambda m: m.method, is_text=True),
    Column[Measured]("step\nms", lambda m: number(m.step_s, 1e3)),
    Column[Measured]("alone\nms", lambda m: number(m.steps.alone_s, 1e3)),
    Column[Measured]("sent\nMB", lambda m: number(m.sent_bytes, 1e-6)),
    Column[Measured]("last\nloss", _loss),
    Column[Measured]("times\nas fast", lambda m: f"{m.speedup:.2f}"),
)
