"""The protocol for miles, by the documented calls of its WeightUpdater; miles itself needs GPUs.

The modules of miles are stand-ins. Its engine is a worker as SGLang has it, in an own process.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import policies
import torch
from calls import Process
from policies import Tensors

from sparsewire.errors import InputError
from sparsewire.weights.engines import miles as ours
from sparsewire.weights.engines import sglang

UPDATE = "miles.backends.training_utils.weight_update"


class WeightTransferProtocol(ABC):
    """Of miles."""

    def __init__(self, args: Namespace) -> None:
        self.args = args
        self.rollout_engines: Any = None
        self.is_sender: bool | None = None
        self.group_name = "miles"
        self.update_weight_metrics: dict[str, float] = {}

    @abstractmethod
    def connect(self, *arguments: Any) -> None: ...
    @abstractmethod
    def send_bucket(self, bucket: list[tuple[str, Any]]) -> None: ...

    def pop_metrics(self) -> dict[str, float]:
        metrics, self.update_weight_metrics = self.update_weight_metrics, {}
        return metrics


class Engine:
    """As miles has an engine of two workers: it pauses, and must be in a session to be updated."""

    def __init__(self, worker: Process) -> None:
        self.worker = worker
        self.done: list[str] = []

    async def update_weights_from_tensor(
        self, serialized_named_tensors: list[str], load_format: str, selector: str
    ) -> dict[str, Any]:
        assert self.done[-2:] == ["pause_engines", "begin_weight_update"]
        assert serialized_named_tensors == [sglang.NO_TENSORS] * 2
        self.worker.call("update_weights_from_tensor", [], load_format)
        return {"success": True}


def session() -> ModuleType:
    """Of miles: calls to all engines."""
    made = ModuleType("session")

    def noted(name: str) -> Any:
        def note(*arguments: Any) -> None:
            engines = next(each for each in arguments if isinstance(each, list))
            for engine in engines:
                engine.done.append(name)

        return note

    for name in ("pause_engines", "begin_weight_update", "end_weight_update"):
        setattr(made, name, noted(name))
    for name in ("set_weight_version", "resume_engines"):
        setattr(made, name, noted(name))

    def check_weight_sync_results(results: list[Any], *, is_lora: bool) -> None:
        assert not is_lora
        assert all(result["success"] for result in results)

    made.check_weight_sync_results = check_weight_sync_results
    return made


@pytest.fixture
def miles(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["miles", "miles.backends", "miles.backends.training_utils", "miles.utils", UPDATE]
    made = {name: ModuleType(name) for name in names}
    iterators, protocol = ModuleType("hf_weight_iterator"), ModuleType("protocol")
    iterators.WeightUpdatePlacement = SimpleNamespace
    protocol.WeightTransferProtocol = WeightTransferProtocol
    made |= {f"{UPDATE}.hf_weight_iterator": iterators, f"{UPDATE}.protocol": protocol}
    made[UPDATE].session = session()
    futures = SimpleNamespace(submit=lambda work: work, wait_futures=gathered)
    made["miles.utils"].async_utils = futures
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)


def gathered(asked: list[Any]) -> list[Any]:
    return [asyncio.run(each) for each in asked]


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv(sglang.ADDRESS, address)
    return address


def update(protocol: Any, number: int, weights: Tensors, engines: list[Engine]) -> None:
    """One round of miles' WeightUpdater on rank 0."""

    def buckets(*, materialize: bool = True) -> Iterator[list[tuple[str, Any]]]:
        pairs = list(weights.items())
        yield from (pairs[begin : begin + 3] for begin in range(0, len(pairs), 3))

    assert protocol.begin_sync(number, buckets)
    for bucket in buckets():
        protocol.send_bucket(bucket)
        assert not engines[0].done
    protocol.finalize(number)


def test_engines_load_each_version_while_they_pause(
    miles: None, address: str, tmp_path: Path
) -> None:
    weights = policies.policy()
    checkpoint = str(policies.save(weights, tmp_path / "checkpoint"))
    protocol = ours.build_protocol(Namespace(rollout_num_gpus_per_engine=2))
    assert isinstance(protocol, WeightTransferProtocol)
    assert protocol.required_placement.gather_pp
    engine = Engine(Process("sglang_worker.py", **{sglang.CHECKPOINT: checkpoint}))
    engine.worker.call("new", checkpoint)
    for number in (1, 2):
        # miles connects anew when engines come or go.
        protocol.connect([engine], None, None, None, None, "target")
        assert protocol.is_sender
        policies.step(weights, number)
        engine.done.clear()
        update(protocol, number, weights, [engine])
        assert engine.worker.call("sums") == policies.sums(weights)
        assert engine.done[-3:] == ["end_weight_update", "set_weight_version", "resume_engines"]
        assert protocol.pop_metrics()["perf/update_weights_nbytes"] > 0
    engine.worker.close()
    protocol.close()


def test_other_ranks_publish_nothing(miles: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    protocol = ours.build_protocol(Namespace(rollout_num_gpus_per_engine=1))
    protocol.connect([], None, None, None, None, "target")
    assert not protocol.is_sender
    assert protocol.begin_sync(1, lambda **_: iter(()))
    protocol.finalize(1)


def test_without_an_address_it_says_what_to_set(
    miles: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(sglang.ADDRESS, raising=False)
    protocol = ours.build_protocol(Namespace(rollout_num_gpus_per_engine=1))
    with pytest.raises(InputError, match=sglang.ADDRESS):
        protocol.connect([], None, None, None, None, "target")
