"""Runs trainings on emulated hosts, and keeps what came of each, so that none is run twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.crew import Event, module_argv, run_on_loopback, run_workers
from sparsewire.tools.experiment.progress import Move
from sparsewire.tools.training.outer.alone import PRETRAIN, TIME
from sparsewire.tools.training.outer.order import Order, Setting

_WORKER = "sparsewire.tools.training.outer.worker"
_ALONE = "sparsewire.tools.training.outer.alone"


@dataclass(frozen=True)
class Trained:
    """What came of an order; values are means over the ranks.

    `losses` are held-out ones, of the steps that are multiples of the setting's `between`, and of
    the end. `up` and `down` are bytes of an interface up to there, headers included, `most_up`
    those of the rank that sent most. `ends_s` is when each step ended on the slowest rank.
    """

    order: Order
    parameters: int
    losses: list[float]
    up: list[float]
    down: list[float]
    most_up: list[float]
    ends_s: list[float]
    told: dict[str, Any]

    @property
    def final_loss(self) -> float:
        return self.losses[-1]


@dataclass(frozen=True)
class Runs:
    """All runs of one setting; `folder` has a file for each, and the workers' logs."""

    setting: Setting
    folder: Path
    move: Move

    def train(self, cluster: Cluster, orders: Iterable[Order]) -> dict[Order, Trained]:
        """What came of each order, in a run of now or of before, in one start of the workers.

        Raises LabError or WorkerFailed where that fails.
        """
        wanted = list(orders)
        files = [self._file(str(cluster), asdict(order)) for order in wanted]
        missing = [place for place, file in enumerate(files) if not file.exists()]
        if missing:
            self._run(cluster, [wanted[place] for place in missing], [files[p] for p in missing])
        return {order: _kept(order, file) for order, file in zip(wanted, files, strict=True)}

    def _run(self, cluster: Cluster, orders: list[Order], files: list[Path]) -> None:
        def follow(event: Event) -> None:
            number = event.pop("order")
            order = orders[number]
            if event.pop("event") == "trained":
                files[number].write_text(json.dumps(event))
            else:
                self.move(_named(order, cluster), event["done"], order.steps)

        self.move(_named(orders[0], cluster), 0, orders[0].steps, "starting the workers")
        argv = module_argv(_WORKER, self.setting.argument(orders))
        with cluster.open() as site:
            run_workers(site, argv, self.folder / "logs", follow)

    def step_seconds(self, order: Order) -> float:
        """A step of a replica that has a core to itself, and averages nothing."""
        file = self._file("alone", asdict(order))
        if not file.exists():
            self._alone(TIME, order, lambda event: _write(file, event["seconds"]))
        return float(json.loads(file.read_text()))

    def pretrain(self, order: Order) -> None:
        """Make the parameters to start from, if they are not there."""

        def follow(event: Event) -> None:
            self.move("pretraining", event["done"], order.steps, f"loss {event['loss']:.3f}")

        if not Path(self.setting.start).exists():
            self._alone(PRETRAIN, order, follow)

    def _alone(self, task: str, order: Order, follow: Callable[[Event], None]) -> None:
        argument = self.setting.argument([order])
        run_on_loopback(_ALONE, task, argument, ranks=1, on_event=follow)

    def _file(self, *what: object) -> Path:
        names = {name: Path(getattr(self.setting, name)).name for name in ("characters", "start")}
        digest = sha256(json.dumps([{**asdict(self.setting), **names}, *what]).encode()).hexdigest()
        return self.folder / f"{digest[:20]}.json"


def _write(file: Path, value: object) -> None:
    file.write_text(json.dumps(value))


def _kept(order: Order, file: Path) -> Trained:
    return Trained(order, **json.loads(file.read_text()))


def _named(order: Order, cluster: Cluster) -> str:
    rates = f"{order.rate:g}" + (f"/{order.outer_rate:g}" if order.outer_rate else "")
    return f"{order.method}, rate {rates}, seed {order.seed}, on {cluster.place}"
