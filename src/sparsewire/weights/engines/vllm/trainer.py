"""The side of a training that vLLM's workers read from: vLLM's class for trainers, since 0.28."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from sparsewire.errors import InputError
from sparsewire.weights.engines.publishing import publish
from sparsewire.weights.engines.vllm.reader import Load
from sparsewire.weights.publisher import KEEP, Publisher

BACKEND = "sparsewire"
"""The name of our back end in vLLM."""


@dataclass
class TrainerInfo:
    """Where rank 0 of a training publishes.

    Workers reach it at `address`, which is the publisher's own by default. `checkpoint` and `load`
    go to the workers: see `ReaderInfo`. `directory` keeps the chain when this process ends.
    """

    backend: ClassVar[str] = BACKEND

    bind: str
    address: str | None = None
    checkpoint: str | None = None
    load: str = Load.RELOAD.value
    keep: int = KEEP
    directory: str | None = None
    rank: int = 0

    @property
    def is_sender(self) -> bool:
        return self.rank == 0

    def publisher(self) -> Publisher:
        """One that publishes there; raises what Publisher raises."""
        return Publisher(self.bind, keep=self.keep, directory=self.directory)

    def for_workers(self, publisher: Publisher) -> dict[str, Any]:
        """What `init_weight_transfer_engine` takes."""
        return {
            "address": self.address or str(publisher.address),
            "checkpoint": self.checkpoint,
            "load": self.load,
        }


class Trainer:
    """What `TrainerWeightTransferEngine` of vLLM leaves to its back ends."""

    init_info_cls = TrainerInfo

    # Of vLLM's class.
    client: Any
    source: Iterable[tuple[str, Any]]
    is_sender: bool

    _publisher: Publisher | None = None

    @classmethod
    def trainer_init(cls, init_info: TrainerInfo, *, client: Any, source: Any = None) -> Trainer:
        """Publish on rank 0, and have the workers join.

        `source` gives pairs of names and tensors anew each time it is iterated, names as in the
        checkpoint. Raises InputError if there is none, and what Publisher raises.
        """
        if source is None:
            raise InputError("the back end sparsewire sends the weights of a `source`: give one")
        engine: Any = cls
        made: Trainer = engine(client=client, source=source, is_sender=init_info.is_sender)
        if made.is_sender:
            made._open(init_info)
        return made

    def _open(self, info: TrainerInfo) -> None:
        self._publisher = info.publisher()
        self.client.init_weight_transfer_engine(info.for_workers(self._publisher))

    def send_weights(self) -> None:
        """Publish a version, and have all workers load it; on every rank of the training."""
        if self._publisher is None:
            # To iterate is collective: it may gather shards.
            for _ in self.source:
                pass
            return
        version = publish(self._publisher, self.source)
        self.client.start_weight_update()
        self.client.update_weights({"version": version})
        self.client.finish_weight_update(weight_version=str(version))

    def shutdown(self) -> None:
        """Publish no more."""
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None
