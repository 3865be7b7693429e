"""The back end in vLLM itself, on a processor: it serves a small Llama that a trainer changes.

It takes vLLM's build for processors, and half a minute. It was run with 0.28.0, 0.29.0 and 0.32.0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch
import transformers

from sparsewire.weights.engines import vllm as ours

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(300)]

PROMPT = {"prompt_token_ids": [5, 6, 7]}


def policy() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=128,
        bos_token_id=1,
        eos_token_id=2,
    )
    return transformers.LlamaForCausalLM(config).bfloat16()


@torch.no_grad()
def train(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        chosen = torch.rand(parameter.shape) < 0.1
        parameter[chosen] = (parameter[chosen].float() * 1.5 + 0.05).bfloat16()


class Client:
    """The control of a vLLM in this process."""

    def __init__(self, llm: Any) -> None:
        self.llm = llm

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.llm.init_weight_transfer_engine({"init_info": init_info})

    def start_weight_update(self) -> None:
        self.llm.start_weight_update()

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.llm.update_weights({"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.llm.finish_weight_update()


def served(directory: Path, **settings: Any) -> Any:
    from vllm import LLM

    return LLM(
        str(directory),
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=64,
        **settings,
    )


def generated(llm: Any) -> list[tuple[int, float]]:
    """Tokens, and the logarithms of their probabilities."""
    from vllm import SamplingParams

    greedily = SamplingParams(
        max_tokens=8, temperature=0, ignore_eos=True, detokenize=False, logprobs=1
    )
    [output] = llm.generate(PROMPT, greedily, use_tqdm=False)
    chosen = output.outputs[0]
    return [
        (token, each[token].logprob)
        for token, each in zip(chosen.token_ids, chosen.logprobs, strict=True)
    ]


def test_a_served_model_follows_its_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from vllm.config import WeightTransferConfig
    from vllm.distributed.weight_transfer import base, factory

    ours.register()
    model = policy()
    model.save_pretrained(tmp_path / "first")
    transfer = WeightTransferConfig(backend=ours.BACKEND)
    llm = served(tmp_path / "first", weight_transfer_config=transfer)
    before = generated(llm)
    trainer = factory.WeightTransferTrainerFactory.trainer_init(
        ours.TrainerInfo(bind="127.0.0.1:0"), client=Client(llm), source=base.ModuleSource(model)
    )
    for _ in range(2):
        train(model)
        trainer.send_weights()
    after = generated(llm)
    trainer.shutdown()
    model.save_pretrained(tmp_path / "last")
    assert before != after == generated(served(tmp_path / "last"))
