"""A process that serves a policy as a worker of vLLM does."""

from __future__ import annotations

import sys
from typing import Any

import calls
import vllm_stand_in
from policies import Served

from sparsewire.weights.engines import vllm as ours


class VllmServed(Served):
    """Passes on the calls of the API."""

    def __init__(self, checkpoint: str) -> None:
        super().__init__(checkpoint)
        self._worker = vllm_stand_in.Worker(sys.argv[1], self.model, checkpoint)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)


if __name__ == "__main__":
    vllm_stand_in.install(sys.argv[1])
    ours.register()
    calls.serve(VllmServed)
