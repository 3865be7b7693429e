"""`sparsewire bench workload`: measures workloads on a cluster, method against method.

What it finds is a table for each workload, and all numbers.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich.table import Table

from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.crew import Event, module_argv, run_workers
from sparsewire.tools.experiment.progress import Move, bars
from sparsewire.tools.experiment.report import Column, Report, number, table
from sparsewire.tools.lab import Lab
from sparsewire.tools.measure.wire_limit import ring_bytes
from sparsewire.tools.training.workloads.catalogue import WORKLOADS
from sparsewire.tools.training.workloads.losses import Losses, Trainings, losses_of
from sparsewire.tools.training.workloads.measure import Density, Order, Steps
from sparsewire.tools.training.workloads.method import Method

_ITEM_BYTES = 4
_MODES = {
    "training": "real steps, computed by the processors that the ranks share",
    "gradients": "recorded gradients, replayed beside a stated time of computation",
}


@dataclass(frozen=True)
class Measured:
    """One method on one workload. The other methods are compared with the first one.

    `speedup` is of medians; between `least_speedup` and `most_speedup` lie those of any step of the
    first method to any of this one.
    """

    method: str
    steps: Steps
    speedup: float
    least_speedup: float
    most_speedup: float
    sent_bytes: float
    """Bytes of a step and rank; computed for a dense ring if nobody counts."""
    losses: Losses | None = None
    """The losses of whole trainings, if there were any."""

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


def workload_report(
    orders: Sequence[Order], cluster: Cluster, trainings: Trainings | None = None
) -> Report:
    """Measure all, one after the other, with a progress bar; raises what `measured` does."""
    with bars() as move:
        found = [measured(order, cluster, move, trainings) for order in orders]
    record = {
        "benchmark": "workload",
        "cluster": asdict(cluster),
        "order": {name: value for name, value in asdict(orders[0]).items() if name != "name"},
        "trainings": trainings and asdict(trainings),
        "workloads": [_recorded(each, orders[0]) for each in found],
    }
    shown = (part for each in found for part in _shown(each))
    return Report([_describe(orders[0], cluster), *shown], record)


def measured(
    order: Order, cluster: Cluster, move: Move, trainings: Trainings | None = None
) -> Found:
    """Run one workload; raises LabError or WorkerFailed where that fails."""
    recorded, of_methods = _run(order, cluster, move)
    losses: dict[str, Losses] = {}
    if trainings:
        loopback = Cluster(cluster.ranks)
        losses = losses_of([_run(each, loopback, move)[1] for each in trainings.orders(order)])
    parameters = recorded["parameters"]
    ring = ring_bytes(_ITEM_BYTES * parameters, cluster.ranks)
    methods = list(_compared(of_methods, ring, losses))
    return Found(order.name, parameters, Density(**recorded["density"]), methods)


def _run(order: Order, cluster: Cluster, move: Move) -> tuple[Event, dict[str, Steps]]:
    """The recorded density, and the steps of each method."""
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
    argv = module_argv("sparsewire.tools.training.workloads.worker", json.dumps(asdict(order)))
    with tempfile.TemporaryDirectory(prefix="sparsewire-workload-") as logs, cluster.open() as site:
        run_workers(site, argv, Path(logs), follow)
    return recorded, of_methods


def _progress(order: Order, event: Event) -> tuple[int, int]:
    each = order.warmup + order.steps
    done = order.methods.index(event["method"]) * each + event["done"]
    return done, each * len(order.methods)


def _compared(
    of_methods: dict[str, Steps], ring: float, losses: dict[str, Losses]
) -> Iterator[Measured]:
    first = next(iter(of_methods.values())).seconds
    for method, steps in of_methods.items():
        own = steps.seconds
        yield Measured(
            method,
            steps,
            median(first) / median(own),
            min(first) / max(own),
            max(first) / min(own),
            ring if steps.sent_bytes is None else steps.sent_bytes,
            losses.get(method),
        )


def methods_for(name: str, methods: Sequence[str]) -> list[str]:
    """The methods for a workload: without those of sparse tables if it has no table.

    Raises ValueError for a method that is not known, or if none is left.
    """
    known = [Method.parse(each) for each in methods]
    kept = [str(each) for each in known if WORKLOADS[name].has_tables or not each.sparse]
    if not kept:
        raise ValueError(f"{name} has no tables with sparse gradients: name another method")
    return kept


def _recorded(found: Found, order: Order) -> dict[str, Any]:
    workload = WORKLOADS[found.name]
    methods = [{**asdict(each), "step_s": each.step_s} for each in found.methods]
    return {
        **asdict(found),
        "methods": methods,
        "scaled": workload.scaled if order.size == "here" else None,
        "shape": asdict(workload.sizes[order.size]),
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
        f"{density.element:.2%} of the elements, {density.block:.2%} of the blocks; in all ranks' "
        f"together: {density.union_element:.2%}, {density.union_block:.2%}. Of a rank's non-zero "
        f"blocks others have {density.shared_block:.0%}, too."
    )
    yield table(_COLUMNS, found.methods)


def _loss(measured: Measured) -> str:
    """The trainings' loss, mean over the seeds; without any, that of the last measured step."""
    if measured.losses:
        return f"{fmean(measured.losses.final):.5f}"
    return f"{measured.steps.losses[-1]:.5f}" if measured.steps.losses else "-"


def _spread(measured: Measured) -> str:
    return f"{measured.least_speedup:.2f} to {measured.most_speedup:.2f}"


_COLUMNS = (
    Column[Measured]("method", lambda m: m.method, is_text=True),
    Column[Measured]("step\nms", lambda m: number(m.step_s, 1e3)),
    Column[Measured]("alone\nms", lambda m: number(m.steps.alone_s, 1e3)),
    Column[Measured]("sent\nMB", lambda m: number(m.sent_bytes, 1e-6)),
    Column[Measured]("last\nloss", _loss),
    Column[Measured]("times\nas fast", lambda m: f"{m.speedup:.2f}"),
    Column[Measured]("any step\nto any", _spread),
)
