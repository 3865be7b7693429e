"""A process that serves a policy as a worker of a rollout of verl does."""

from __future__ import annotations

import asyncio
from typing import Any

import calls
from policies import Served

from sparsewire.weights.engines.verl import Engine


class VerlServed(Served):
    def __init__(self, checkpoint: str, **engine_kwargs: Any) -> None:
        super().__init__(checkpoint)
        self._engine = Engine(bucket_size=1 << 20, **engine_kwargs)

    def execute_checkpoint_engine(self, method: str, arguments: dict[str, Any]) -> Any:
        return getattr(self._engine, method)(**arguments)

    def update_weights(self, global_steps: int) -> None:
        asyncio.run(self._update(global_steps))

    async def _update(self, global_steps: int) -> None:
        async for pair in self._engine.receive_weights(global_steps=global_steps):
            self.model.load_weights([pair])


if __name__ == "__main__":
    calls.serve(VerlServed)
