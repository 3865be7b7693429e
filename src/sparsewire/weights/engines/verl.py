"""The checkpoint engine for verl: `backend: sparsewire` with `custom_backend_module:
sparsewire.weights.engines.verl_plugin`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from sparsewire.errors import InputError
from sparsewire.weights.engines.handover import Handover
from sparsewire.weights.engines.host_copy import HostCopy
from sparsewire.weights.publisher import KEEP, Published, Publisher
from sparsewire.weights.readers.end import TIMEOUT_S

if TYPE_CHECKING:
    import torch

BACKEND = "sparsewire"
"""The name of our back end in verl."""

Topology = tuple[dict[str, list[Any]], dict[str, list[Any]]]
Weights = Iterable[tuple[str, Any]] | AsyncIterable[tuple[str, Any]]


class Engine:
    """What `CheckpointEngine` of verl leaves to its back ends.

    Rank 0 of the actor publishes, and every worker of the rollout reads. Both go on from step to
    step: only the first version is sent whole, or not even that one if there is a `checkpoint`.
    """

    wire_format = "named_tensors"

    def __init__(
        self,
        bucket_size: int = 0,
        is_master: bool = False,
        *,
        bind: str | None = None,
        checkpoint: str | None = None,
        keep: int = KEEP,
        directory: str | None = None,
        timeout: float = TIMEOUT_S,
    ) -> None:
        """All but the first two are `engine_kwargs.sparsewire` of verl's configuration.

        `bind` is where to publish, by default a free port at the node's address. `checkpoint` is a
        local path at each rollout worker. `bucket_size` is not needed.
        """
        self._is_master = is_master
        self._bind = bind
        self._checkpoint = checkpoint
        self._keep = keep
        self._directory = directory
        self._timeout = timeout
        self._publisher: Publisher | None = None
        self._copy: HostCopy | None = None
        self._address = ""
        self._version: int | None = None

    def prepare(self) -> dict[str, Any]:
        """Where rank 0 of the actor publishes, and the version that comes next."""
        if not self._is_master:
            return {}
        if self._publisher is None:
            bind = self._bind or f"{_node_address()}:0"
            self._publisher = Publisher(bind, keep=self._keep, directory=self._directory)
        newest = self._publisher.version
        version = 0 if newest is None else newest + 1
        return {"address": str(self._publisher.address), "version": version}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> Topology:
        """Everybody learns what rank 0 of the actor said."""
        told = {key: [value] for key, value in metadata[0].items()}
        actors, readers = (
            {key: value * size for key, value in told.items()} | {"reads": [reads] * size}
            for size, reads in ((actor_wg_world_size, False), (rollout_world_size, True))
        )
        return actors, readers

    def init_process_group(self, address: str, version: int, reads: bool) -> None:
        """Join the publisher, unless it is the one of the step before."""
        self._version = version
        if reads and address != self._address:
            self.close()
            self._copy = HostCopy(address, self._checkpoint)
        self._address = address

    def finalize(self) -> None:
        """Nothing: publisher and readers stay for the next step."""

    async def send_weights(
        self, weights: Weights, global_steps: int | None = None
    ) -> dict[str, float]:
        """Publish a version on rank 0; the other ranks only take part in gathering it."""
        if self._publisher is None:
            async for _ in _each(weights):
                pass
            return {}
        published = await self._publish(self._publisher, weights)
        return {f"{BACKEND}/{name}": float(value) for name, value in published._asdict().items()}

    async def _publish(self, publisher: Publisher, weights: Weights) -> Published:
        handover = Handover(partial(publisher.publish, version=self._version))
        try:
            async for name, tensor in _each(weights):
                handover.put(name, tensor)
        except BaseException as error:
            handover.abandon(error)
            raise
        return handover.finish()

    async def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """The tensors that changed, on this worker's device; at first all."""
        if self._copy is None:
            raise InputError("verl calls init_process_group before receive_weights")
        await asyncio.to_thread(self._copy.advance, self._version, self._timeout)
        for name, tensor in self._copy.owed():
            yield name, tensor
        self._copy.settle()

    def close(self) -> None:
        """Publish and read no more. verl ends its workers, which does so too."""
        for each in (self._publisher, self._copy):
            if each is not None:
                each.close()
        self._publisher = self._copy = None


async def _each(weights: Weights) -> AsyncIterator[tuple[str, Any]]:
    if isinstance(weights, AsyncIterable):
        async for pair in weights:
            yield pair
    else:
        for pair in weights:
            yield pair


def _node_address() -> str:
    import ray

    return str(ray.util.get_node_ip_address())
