"""Weight transfer of TRL's AsyncGRPO trainer: what its argument `weight_transfer` takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from sparsewire.errors import InputError
from sparsewire.weights.engines.publishing import publish
from sparsewire.weights.engines.vllm.trainer import TrainerInfo
from sparsewire.weights.publisher import Publisher


class Client(Protocol):
    """What controls a server of vLLM: TRL's `VLLMClient`, or anything like it."""

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None: ...
    def pause(self) -> None: ...
    def start_weight_update(self) -> None: ...
    def update_weights(self, update_info: dict[str, Any]) -> None: ...
    def finish_weight_update(self) -> None: ...
    def resume(self) -> None: ...


class WeightTransfer:
    """Publishes each policy, and has the server load it; without a client, readers come alone."""

    def __init__(self, info: TrainerInfo, client: Client | None = None) -> None:
        """`info` says where to publish: see `sparsewire.weights.engines.vllm`."""
        self._info = info
        self._client = client
        self.publisher: Publisher | None = None
        """What readers follow, from `init_weight_transfer` on."""

    def init_weight_transfer(self) -> None:
        """Publish from now on, and have the server's workers join."""
        self.publisher = self._info.publisher()
        if self._client:
            self._client.init_weight_transfer_engine(self._info.for_workers(self.publisher))

    def pause(self) -> None:
        """Nothing yet: the server goes on until a new version is there for it to load."""

    def send_weights(self, iterator: Iterable[tuple[str, Any]]) -> None:
        """Publish a version; then pause the server, and have it load that.

        Raises InputError before `init_weight_transfer`, and what `Publisher.publish` raises.
        """
        if self.publisher is None:
            raise InputError("call init_weight_transfer before send_weights")
        version = publish(self.publisher, iterator)
        if self._client:
            self._client.pause()
            self._client.start_weight_update()
            self._client.update_weights({"version": version})
            self._client.finish_weight_update()

    def resume(self) -> None:
        """Resume the server."""
        if self._client:
            self._client.resume()

    def destroy(self) -> None:
        """Publish no more."""
        if self.publisher:
            self.publisher.close()
            self.publisher = None
