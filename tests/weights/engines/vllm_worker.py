"""A process that serves a policy as a worker of vLLM does: it gets calls by stdin, one a line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import policies
import vllm_stand_in
from policies import FusedModel

from sparsewire.weights.engines import vllm as ours


class Served:
    """A worker of vLLM, and what tests ask of it."""

    def __init__(self, release: str, checkpoint: str) -> None:
        from safetensors.torch import load_file

        tensors = load_file(Path(checkpoint) / "model.safetensors")
        self._names = list(tensors)
        self._model = FusedModel(tensors)
        self._worker = vllm_stand_in.Worker(release, self._model, checkpoint)
        self._model.loaded.clear()

    def call(self, method: str, arguments: list[object]) -> object:
        if method == "sums":
            return policies.sums(self._model.tensors(self._names))
        if method == "loaded":
            loaded, self._model.loaded = self._model.loaded, []
            return loaded
        if method == "fail_at":
            self._model.fails_at = str(arguments[0])
            return None
        return getattr(self._worker, method)(*arguments)


def main(release: str) -> None:
    vllm_stand_in.install(release)
    ours.register()
    served: Served | None = None
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        try:
            if method == "serve":
                served, result = Served(release, *arguments), None
            else:
                assert served
                result = served.call(method, arguments)
            answer = {"result": result}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
