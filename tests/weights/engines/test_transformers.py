"""Models of transformers read in place: no adapter is needed."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers

from sparsewire.weights.publisher import Publisher
from sparsewire.weights.receiver import Receiver


def gpt2() -> torch.nn.Module:
    config = transformers.GPT2Config(
        vocab_size=128,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    return transformers.GPT2LMHeadModel(config).eval()


def llama() -> torch.nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        bos_token_id=1,
        eos_token_id=2,
    )
    return transformers.LlamaForCausalLM(config).bfloat16().eval()


@torch.no_grad()
def train(model: torch.nn.Module) -> None:
    """Change one element in a hundred."""
    for parameter in model.parameters():
        chosen = torch.rand(parameter.shape) < 0.01
        chosen.view(-1)[0] = True
        parameter[chosen] = (parameter[chosen].float() * 1.25 + 0.1).to(parameter.dtype)


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(8)[None]).logits


@pytest.mark.parametrize("make", [gpt2, llama])
def test_a_model_follows_another_bit_for_bit(make: object) -> None:
    assert callable(make)
    trained, serving = make(), make()
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish(trained)
        with Receiver(publisher.address, base=serving) as receiver:
            receiver.stage().apply()
            for _ in range(2):
                train(trained)
                publisher.publish(trained)
                receiver.stage().apply()
                for mine, theirs in zip(serving.parameters(), trained.parameters(), strict=True):
                    assert torch.equal(mine, theirs)
                assert torch.equal(logits(serving), logits(trained))


def test_tied_weights_go_once_and_stay_tied() -> None:
    trained, serving = gpt2(), gpt2()
    with Publisher("127.0.0.1:0") as publisher:
        published = publisher.publish(trained)
        assert published.elements == sum(each.numel() for each in trained.parameters())
        with Receiver(publisher.address, base=serving) as receiver:
            assert len(receiver.stage().apply().changed) == len(list(trained.parameters()))
    assert serving.lm_head.weight is serving.transformer.wte.weight
    assert torch.equal(serving.lm_head.weight, trained.lm_head.weight)


def test_an_eager_generation_uses_the_new_weights() -> None:
    trained, serving = llama(), llama()
    with Publisher("127.0.0.1:0") as publisher, Receiver(publisher.address, serving) as receiver:
        publisher.publish(trained)
        receiver.stage().verify().apply()
        told = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
        prompt = torch.tensor([[5, 6, 7]])
        assert torch.equal(serving.generate(prompt, **told), trained.generate(prompt, **told))
