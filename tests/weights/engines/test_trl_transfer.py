"""The weight transfer for TRL: by its documented protocol, and driven by TRL's own trainer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import policies
import torch
from vllm_client import Worker

from sparsewire.errors import InputError
from sparsewire.weights.engines.trl import WeightTransfer
from sparsewire.weights.engines.vllm import TrainerInfo
from sparsewire.weights.receiver import Receiver


@pytest.fixture
def server() -> Iterator[Worker]:
    worker = Worker("0.29")
    yield worker
    worker.close()


def test_the_server_goes_on_until_the_version_is_there(server: Worker, tmp_path: Path) -> None:
    weights = policies.policy()
    server.call("new", str(policies.save(weights, tmp_path / "checkpoint")))
    transfer = WeightTransfer(TrainerInfo(bind="127.0.0.1:0"), server)
    transfer.init_weight_transfer()

    def iterated() -> Iterator[tuple[str, torch.Tensor]]:
        yield from weights.items()
        assert "pause" not in server.done

    for number in range(2):
        policies.step(weights, number)
        server.done.clear()
        transfer.pause()
        transfer.send_weights(iterated())
        transfer.resume()
        update = ["start_weight_update", "update_weights", "finish_weight_update"]
        assert server.done == ["pause", *update, "resume"]
        assert server.call("sums") == policies.sums(weights)
    transfer.destroy()


def test_weights_need_a_transfer_that_has_begun() -> None:
    with pytest.raises(InputError, match="init_weight_transfer"):
        WeightTransfer(TrainerInfo(bind="127.0.0.1:0")).send_weights(iter(()))


def test_trl_itself_drives_the_transfer() -> None:
    trainers = pytest.importorskip("trl.experimental.async_grpo.async_grpo_trainer")
    accelerate = pytest.importorskip("accelerate")
    transfer = WeightTransfer(TrainerInfo(bind="127.0.0.1:0"))
    # A whole trainer wants a server of vLLM and a tokenizer; only what synchronizes is used.
    trainer: Any = trainers.AsyncGRPOTrainer.__new__(trainers.AsyncGRPOTrainer)
    trainer.accelerator = accelerate.Accelerator(cpu=True)
    trainer.model, reading = torch.nn.Linear(40, 30), torch.nn.Linear(40, 30)
    trainer.weight_transfer, trainer.rollout_worker = transfer, None
    trainer._lora_sync, trainer.model_version = False, 0
    trainer._metrics = {"train": defaultdict(list)}
    trainers._TrainBeginCallback(trainer).on_train_begin(None, None, None)
    assert transfer.publisher
    with Receiver(transfer.publisher.address, base=reading) as receiver:
        receiver.stage().apply()
        assert torch.equal(reading.weight, trainer.model.weight)
        with torch.no_grad():
            trainer.model.weight[3, 5] += 1
        trainer._sync_weight()
        assert receiver.stage().apply().changed == ["weight"]
    assert torch.equal(reading.weight, trainer.model.weight)
    assert trainer.model_version == 2
    transfer.destroy()
