"""The back end for vLLM against the documented protocol of four releases.

Stand-ins call its methods in the documented order with the documented arguments; each worker is a
process of its own. test_vllm_real.py has the real package.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import policies
import vllm_stand_in
from policies import Tensors
from vllm_client import Worker

from sparsewire.errors import InputError, MismatchError
from sparsewire.weights.engines import vllm as ours
from sparsewire.weights.publisher import Publisher

WITH_TRAINERS = [each for each in vllm_stand_in.RELEASES if each >= "0.28"]
WITHOUT_TRAINERS = [each for each in vllm_stand_in.RELEASES if each < "0.28"]


@pytest.fixture(scope="module")
def workers() -> Iterator[dict[str, Worker]]:
    """One for each release, begun when it is needed first: each imports torch."""
    begun: dict[str, Worker] = {}
    yield begun
    for each in begun.values():
        each.close()


@pytest.fixture
def worker(
    release: str,
    weights: Tensors,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: dict[str, Worker],
) -> Worker:
    for name, module in vllm_stand_in.modules(release).items():
        monkeypatch.setitem(sys.modules, name, module)
    ours.register()
    if release not in workers:
        workers[release] = Worker(release)
    checkpoint = policies.save(weights, tmp_path / "checkpoint")
    workers[release].call("new", str(checkpoint))
    return workers[release]


class Source:
    """Gives the policy anew each time, as a WeightSource does."""

    def __init__(self, weights: Tensors) -> None:
        self.weights = weights
        self.passes = 0

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        self.passes += 1
        yield from self.weights.items()


def trainer(worker: Worker, source: Source | None, **settings: Any) -> Any:
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

    info = ours.TrainerInfo(bind="127.0.0.1:0", **settings)
    return WeightTransferTrainerFactory.trainer_init(info, client=worker, source=source)


@pytest.mark.parametrize("load", ["reload", "direct"])
@pytest.mark.parametrize("release", WITH_TRAINERS)
def test_a_trainer_brings_each_version_to_the_worker(
    release: str, load: str, weights: Tensors, worker: Worker
) -> None:
    engine = trainer(worker, Source(weights), load=load)
    for number in range(3):
        policies.step(weights, number)
        engine.send_weights()
        assert worker.call("sums") == policies.sums(weights)
    engine.shutdown()


@pytest.mark.parametrize("release", WITH_TRAINERS[-1:])
def test_directly_only_what_changed_is_loaded(
    release: str, weights: Tensors, worker: Worker
) -> None:
    engine = trainer(worker, Source(weights), load="direct")
    engine.send_weights()
    assert sorted(worker.call("loaded")) == sorted(weights)
    policies.step(weights, 1)
    engine.send_weights()
    assert sorted(worker.call("loaded")) == sorted(list(weights)[1::2])
    engine.send_weights()
    assert worker.call("loaded") == []
    engine.shutdown()


@pytest.mark.parametrize("load", ["reload", "direct"])
@pytest.mark.parametrize("release", WITH_TRAINERS[-1:])
def test_what_was_half_loaded_comes_again_with_the_next_version(
    release: str, load: str, weights: Tensors, worker: Worker
) -> None:
    engine = trainer(worker, Source(weights), load=load)
    engine.send_weights()
    policies.step(weights, 0)
    changed = list(weights)[0::2]
    worker.call("fail_at", changed[1])
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.send_weights()
    policies.step(weights, 1)
    engine.send_weights()
    assert worker.call("sums") == policies.sums(weights)
    engine.shutdown()


@pytest.mark.parametrize("release", WITH_TRAINERS[-1:])
def test_other_ranks_of_the_training_only_iterate(
    release: str, weights: Tensors, worker: Worker
) -> None:
    source = Source(weights)
    engine = trainer(worker, source, rank=1)
    engine.send_weights()
    assert source.passes == 1
    assert worker.call("loaded") == []


@pytest.mark.parametrize("release", WITH_TRAINERS[-1:])
def test_wrong_use_is_told(release: str, weights: Tensors, worker: Worker) -> None:
    with pytest.raises(InputError, match="source"):
        trainer(worker, None)
    with pytest.raises(RuntimeError, match="InputError: call init_weight_transfer_engine"):
        worker.update_weights({"version": 0})
    with pytest.raises(RuntimeError, match="InputError: 'fast' is no way to load"):
        worker.init_weight_transfer_engine({"address": "127.0.0.1:1", "load": "fast"})


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("release", WITHOUT_TRAINERS)
def test_before_there_were_trainers_the_publisher_is_used_by_hand(
    release: str, has_checkpoint: bool, weights: Tensors, worker: Worker, tmp_path: Path
) -> None:
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    engine = WeightTransferEngineFactory.registry["sparsewire"]
    with Publisher("127.0.0.1:0") as publisher:
        told = {"address": str(publisher.address)}
        if has_checkpoint:
            told["checkpoint"] = str(tmp_path / "checkpoint")
        worker.init_weight_transfer_engine(told)
        for number in range(3):
            policies.step(weights, number)
            engine.trainer_send_weights(iter(weights.items()), publisher)
            worker.start_weight_update()
            worker.update_weights({"version": publisher.version})
            worker.finish_weight_update()
            assert worker.call("sums") == policies.sums(weights)


@pytest.mark.parametrize("release", WITH_TRAINERS[-1:])
def test_a_version_that_cannot_be_published_is_gathered_to_its_end(
    release: str, weights: Tensors, worker: Worker
) -> None:
    ended: list[bool] = []

    class Ending(Source):
        def __iter__(self) -> Iterator[tuple[str, Any]]:
            yield from super().__iter__()
            ended.append(True)

    engine = trainer(worker, Ending(weights))
    engine.send_weights()
    first = next(iter(weights))
    weights[first] = weights[first].float()
    with pytest.raises(MismatchError, match=first):
        engine.send_weights()
    assert len(ended) == 2
    engine.shutdown()
