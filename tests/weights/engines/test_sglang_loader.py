"""The loader for SGLang: by its protocol in a process of its own, and by the real package.

SGLang as a whole needs GPUs. Its class that calls loaders does not, and is used where it is there.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import policies
import torch
from calls import Process
from policies import Served, Tensors

from sparsewire.errors import InputError
from sparsewire.weights.engines import sglang as ours
from sparsewire.weights.publisher import Publisher


def test_a_worker_loads_the_newest_version_or_the_one_that_is_named(
    weights: Tensors, checkpoint: str, publisher: Publisher
) -> None:
    where = {ours.ADDRESS: str(publisher.address), ours.CHECKPOINT: checkpoint}
    worker = Process("sglang_worker.py", **where)
    worker.call("new", checkpoint)
    for number, named in enumerate([[], [[ours.VERSION, 1]], []]):
        policies.step(weights, number)
        publisher.publish(weights)
        worker.call("update_weights_from_tensor", named, ours.LOAD_FORMAT)
        assert worker.call("sums") == policies.sums(weights)
        expected = list(weights)[number % 2 :: 2] if number else list(weights)
        assert sorted(worker.call("loaded")) == sorted(expected)
    worker.close()


def test_what_was_half_loaded_comes_again(
    weights: Tensors, checkpoint: str, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ours.ADDRESS, str(publisher.address))
    served = Served(checkpoint)
    publisher.publish(weights)
    ours.load(served.model, [])
    policies.step(weights, 0)
    served.fail_at(list(weights)[2])
    publisher.publish(weights)
    with pytest.raises(RuntimeError, match="out of memory"):
        ours.load(served.model, [])
    assert served.sums() != policies.sums(weights)
    # The same version again is all that it takes.
    ours.load(served.model, [(ours.VERSION, torch.tensor([1]))])
    assert served.sums() == policies.sums(weights)


def test_without_an_address_it_says_what_to_set(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ours.ADDRESS, raising=False)
    with pytest.raises(InputError, match=ours.ADDRESS):
        ours.load(Served(checkpoint).model, [])


def test_sglang_itself_calls_the_loader(
    weights: Tensors, checkpoint: str, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    updater = pytest.importorskip(
        "sglang.srt.model_executor.model_runner_components.weight_updater"
    )
    # What a server's start sets.
    monkeypatch.setattr(updater, "get_model", lambda: SimpleNamespace(weight_cache_mode="off"))
    monkeypatch.setattr(updater, "get_parallel", lambda: SimpleNamespace(tp_rank=0))
    monkeypatch.setenv(ours.ADDRESS, str(publisher.address))
    monkeypatch.setenv(ours.CHECKPOINT, checkpoint)
    served = Served(checkpoint)
    sglang = updater.WeightUpdater(
        tp_rank=0,
        device="cpu",
        gpu_id=0,
        model_config=None,
        custom_weight_loaders=[ours.LOAD_FORMAT],
        get_model=lambda: served.model,
        update_model_fields=None,
        recapture_cuda_graph=None,
        get_model_runner=None,
    )
    for number in range(2):
        policies.step(weights, number)
        publisher.publish(weights)
        assert sglang.update_weights_from_tensor([], ours.LOAD_FORMAT) == (True, "Success")
        assert served.sums() == policies.sums(weights)


def test_the_empty_list_is_what_sglang_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    common = pytest.importorskip("sglang.srt.utils.common")
    assert common.MultiprocessingSerializer.deserialize(ours.NO_TENSORS) == []
