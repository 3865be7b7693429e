"""The language model in parts: batches, negatives, loss."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sparsewire.tools.training.lstm import (  # noqa: E402
    Batches,
    LanguageModel,
    LogUniform,
)


def test_targets_are_the_next_tokens_and_steps_follow_each_other() -> None:
    batches = Batches(np.arange(100, dtype=np.int32), batch=2, length=4, rank=1, world_size=2)
    inputs, targets = batches[0]
    assert inputs.tolist() == [[50, 51, 52, 53], [75, 76, 77, 78]]
    assert targets.tolist() == [[51, 52, 53, 54], [76, 77, 78, 79]]
    assert batches[1][0][0].tolist() == [54, 55, 56, 57]


def test_rows_start_again_at_their_end() -> None:
    batches = Batches(np.arange(10, dtype=np.int32), batch=1, length=4, rank=0, world_size=1)
    assert batches[2][0].tolist() == batches[0][0].tolist()


def test_log_uniform_is_a_distribution_over_the_whole_vocabulary() -> None:
    sampler = LogUniform(1000)
    probability = sampler.log_probability(torch.arange(1000)).exp()
    assert float(probability.sum()) == pytest.approx(1.0, abs=1e-4)
    drawn = sampler.draw(200_000, torch.Generator().manual_seed(0))
    assert int(drawn.min()) >= 0
    assert int(drawn.max()) < 1000
    share = torch.bincount(drawn, minlength=1000)[:10] / len(drawn)
    assert torch.allclose(share, probability[:10], atol=5e-3)


def test_sampled_loss_tends_to_the_exact_loss() -> None:
    torch.manual_seed(0)
    model = LanguageModel(vocabulary=200, width=16)
    inputs, targets = torch.randint(200, (2, 4, 8))
    negatives = LogUniform(200).draw(100_000, torch.Generator().manual_seed(1))
    with torch.no_grad():
        sampled, _ = model(inputs, targets, negatives)
        exact, _ = model.full_loss(inputs, targets)
    assert float(sampled) == pytest.approx(float(exact), abs=0.01)


def test_gradients_touch_only_the_rows_of_the_step() -> None:
    model = LanguageModel(vocabulary=1000, width=16)
    loss, _ = model(torch.tensor([[1, 2]]), torch.tensor([[2, 3]]), torch.tensor([7, 9]))
    loss.backward()
    assert model.inputs.weight.grad.any(1).nonzero().flatten().tolist() == [1, 2]
    assert model.outputs.weight.grad.any(1).nonzero().flatten().tolist() == [2, 3, 7, 9]
