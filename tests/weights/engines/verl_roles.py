"""Actors of Ray for verl's own manager: a training that changes a policy, and rollouts of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import policies
from verl.checkpoint_engine import CheckpointEngineRegistry, CheckpointEngineWorker
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.import_utils import import_external_libs

PLUGIN = "sparsewire.weights.engines.verl_plugin"


class Training(Worker):
    """A rank of the training: each has the whole policy, as after a gathering."""

    def __init__(self) -> None:
        super().__init__()
        import_external_libs(PLUGIN)
        new = CheckpointEngineRegistry.new
        self._engine = new("sparsewire", is_master=self.rank == 0, bucket_size=1 << 20)
        self._weights = policies.policy()
        self._steps = 0

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> Any:
        policies.step(self._weights, self._steps)
        self._steps += 1
        weights = iter(self._weights.items())
        return await self._engine.send_weights(weights, global_steps=global_steps)

    @register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)
    def execute_checkpoint_engine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._engine, method)(*args, **kwargs)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def sums(self) -> dict[str, str]:
        return policies.sums(self._weights)


class Server:
    """What verl calls a server adapter: it loads what comes into the model."""

    replica_rank = 0
    is_leader_rank = True

    def __init__(self, checkpoint: str) -> None:
        self.served = policies.Served(checkpoint)

    async def update_weights(self, pairs: Any, **_: Any) -> None:
        self.served.model.load_weights([pair async for pair in pairs])


class Rollout(CheckpointEngineWorker):
    """verl's own worker, with that server."""

    def __init__(self, rollout_config: Any, checkpoint: str) -> None:
        super().__init__(rollout_config, None, Server(checkpoint))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def sums(self) -> dict[str, str]:
        return self.server_adapter.served.sums()


class Replica:
    """Its engine has nothing to abort, free or resume."""

    def __init__(self, workers: list[Any]) -> None:
        self.workers = workers

    def __getattr__(self, name: str) -> Any:
        async def done(**_: Any) -> None: ...

        return done


def checkpoint_in(directory: Path) -> str:
    return str(policies.save(policies.policy(), directory))
