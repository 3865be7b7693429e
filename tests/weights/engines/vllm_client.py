"""A client of vLLM whose server is one worker, in a process of its own."""

from __future__ import annotations

from typing import Any

from calls import Process


class Worker(Process):
    """The calls that trainers make, with those of TRL; `done` notes them."""

    def __init__(self, release: str) -> None:
        super().__init__("vllm_worker.py", release)
        self.done: list[str] = []

    def _pass_on(self, method: str, *arguments: Any) -> None:
        self.done.append(method)
        self.call(method, *arguments)

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._pass_on("init_weight_transfer_engine", init_info)

    def start_weight_update(self) -> None:
        self._pass_on("start_weight_update")

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self._pass_on("update_weights", update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._pass_on("finish_weight_update", weight_version)

    def pause(self) -> None:
        self.done.append("pause")

    def resume(self) -> None:
        self.done.append("resume")
