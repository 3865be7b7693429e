"""What holds for every hook that takes any compressor: equal bits, modes, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from compressing import (
    STATES,
    State,
    assert_same_everywhere,
    attach,
    group_of,
    make_state,
    with_hook,
)
from lost_rank import assert_others_survived, leave_or_go_backward
from models import FEATURES, Embedding, Plain, batch_of, train
from ranks import Ranks
from reference import engine_operations
from test_torch_topk_hook import IN_TIME_S, Watched
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sparsewire.compress import CompressError, TopK
from sparsewire.torch import hooks

EXAMPLE = Path(__file__).parents[2] / "examples" / "compressed_ddp.py"

kinds = pytest.mark.parametrize("kind", STATES)


def same_everywhere(kind: str) -> None:
    """All ranks have the same bits, on both backends and with each of the two modes."""
    results = []
    for backend in ("sparsewire", "gloo"):
        for overlap in (True, False):
            group = group_of(backend)
            state = make_state(kind, group, overlap=overlap)
            # So small that each layer is a bucket of its own.
            results.append(
                train(Plain, group, steps=8, prepare=with_hook(state), bucket_cap_mb=0.001)
            )
            for name, weight in results[-1][1].items():
                if "running" not in name:
                    assert_same_everywhere(weight)
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=0, atol=0)


def own_randomness(kind: str) -> None:
    """Ranks draw differently from the same gradient, and each as its seed says."""
    compressor = "rand-k:0.1"
    sent = {}
    for seed in (1, 1, 2):
        model = DistributedDataParallel(nn.Linear(200, 1, bias=False))
        state = make_state(kind, compressor=compressor, seed=seed)
        attach(model, state)
        model(torch.ones(1, 200)).sum().backward()
        mean = model.module.weight.grad
        # 20 of 200 on each of three ranks, which hardly are the same 20.
        assert 30 <= mean.count_nonzero() <= 60
        assert mean.equal(sent.setdefault(seed, mean))
    assert not sent[1].equal(sent[2])


def warms_up(kind: str) -> None:
    for group in (group_of("sparsewire"), group_of("gloo")):
        expected = train(Plain, group, steps=3)
        state = make_state(kind, group, warmup_steps=3)
        actual = train(Plain, group, steps=3, prepare=with_hook(state))
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)
        state = make_state(kind, group, warmup_steps=2, overlap=False)
        actual = train(Plain, group, steps=3, prepare=with_hook(state))
        assert actual[0] == pytest.approx(expected[0], rel=1e-5)
        assert not actual[1]["layers.0.weight"].allclose(expected[1]["layers.0.weight"])


def leaves_small_parameters(kind: str) -> None:
    model = DistributedDataParallel(nn.Linear(100, 50))
    attach(model, make_state(kind, min_elements=5000))
    plain = DistributedDataParallel(nn.Linear(100, 50))
    data = torch.randn(3, 100, generator=torch.Generator().manual_seed(dist.get_rank()))
    for each in (model, plain):
        for _ in range(2):
            each.zero_grad()
            each(data).sum().backward()
    expected, actual = plain.module, model.module
    torch.testing.assert_close(actual.bias.grad, expected.bias.grad, rtol=1e-6, atol=0)
    assert not actual.weight.grad.allclose(expected.weight.grad)


def averages_sparse_gradients(kind: str) -> None:
    for backend in ("sparsewire", "gloo"):
        group = group_of(backend)
        expected = train(Embedding, group)
        for overlap in (True, False):
            # With all elements sent, this must be as without the hook.
            state = make_state(kind, group, compressor="identity", overlap=overlap)
            actual = train(Embedding, group, prepare=with_hook(state))
            torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def takes_half_precision(kind: str) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        for overlap in (True, False):
            model = DistributedDataParallel(nn.Linear(FEATURES, 8, dtype=dtype))
            attach(model, make_state(kind, compressor="identity", overlap=overlap))
            data = torch.full((2, FEATURES), float(1 + dist.get_rank()), dtype=dtype)
            model(data).sum().backward()
            assert model.module.weight.grad.dtype == dtype
            assert model.module.weight.grad.eq(4).all()  # Twice the mean of 1, 2 and 3.


def shows_what_is_not_finite(kind: str) -> None:
    """One rank overflows: all see it, and the next step is as if it had not been."""
    model = DistributedDataParallel(nn.Linear(FEATURES, 8))
    state = make_state(kind, compressor={"feedback": "sign", "diana": "qsgd:7"}[kind])
    attach(model, state)
    model(batch_of(0)).sum().backward()
    before = state.state_dict()
    bad = batch_of(1)
    if dist.get_rank() == 1:
        bad[0, 0] = torch.inf
    model.zero_grad()
    model(bad).sum().backward()
    assert not model.module.weight.grad.isfinite().all()
    assert model.module.bias.grad.isfinite().all()
    for name, vectors in state.state_dict().items():
        if isinstance(vectors, dict) and name != "streams":
            assert vectors["weight"].any()
            assert vectors["weight"].equal(before[name]["weight"])


def refuses(kind: str) -> None:
    for settings, text in (
        ({"compressor": "no-such:3"}, "no operator 'no-such'"),
        ({"compressor": "qsgd"}, "LEVELS is missing"),
        ({"warmup_steps": -1}, "warmup_steps"),
        ({"min_elements": -1}, "min_elements"),
    ):
        with pytest.raises(ValueError, match=text):
            make_state(kind, **settings)
    with pytest.raises(RuntimeError, match="register"):
        make_state(kind).state_dict()
    for overlap in (True, False):
        model = DistributedDataParallel(nn.Linear(FEATURES, 1, dtype=torch.float64))
        attach(model, make_state(kind, overlap=overlap))
        with pytest.raises(TypeError, match="float64"):
            model(batch_of(0).double()).sum().backward()
    for compressor, text in (
        ("rand-k:20", "a parameter of 16 elements: k must be 1 to 16"),
        (lambda size: TopK(3, 1), "a parameter of 16 elements: the operator takes 3"),
    ):
        model = DistributedDataParallel(nn.Linear(FEATURES, 1, bias=False))
        state = make_state("feedback", compressor=compressor)
        attach(model, state)
        with pytest.raises(CompressError, match=text):
            model(batch_of(0)).sum().backward()


@kinds
@pytest.mark.parametrize(
    "task",
    [
        same_everywhere,
        own_randomness,
        warms_up,
        leaves_small_parameters,
        averages_sparse_gradients,
        takes_half_precision,
        shows_what_is_not_finite,
        refuses,
    ],
)
def test_hook(ranks: Ranks, task: Callable[[str], None], kind: str) -> None:
    ranks.run(task, kind)


class Breaking(nn.Module):
    """Two layers; the backward pass ends between them if `breaks`."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 64)
        self.second = nn.Linear(64, 64)
        self.breaks = False

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = self.first(batch)
        hidden.register_hook(self._between)
        return self.second(hidden)

    def _between(self, gradient: torch.Tensor) -> None:
        if self.breaks:
            raise ZeroDivisionError


def recorded_futures(model: DistributedDataParallel, state: State) -> list[Any]:
    """Attach the hook; the futures that it gives from now on."""
    futures: list[Any] = []

    def recording(state, bucket):  # DDP does not know annotations that are text.
        futures.append(hooks.error_feedback_hook(state, bucket))
        return futures[-1]

    model.register_comm_hook(state, recording)
    return futures


def overlaps(overlap: bool) -> None:
    """The second layer's gradient comes while the first one's is made, or with it."""
    model = DistributedDataParallel(Watched())
    futures = recorded_futures(model, make_state("feedback", overlap=overlap))
    finished: list[bool] = []

    def wait_for_end(gradient: torch.Tensor) -> None:
        deadline = time.monotonic() + IN_TIME_S
        while overlap and not futures[0].done() and time.monotonic() < deadline:
            time.sleep(0.001)
        finished.append(futures[0].done())

    batch = torch.randn(4, 64)
    model(batch).sum().backward()  # In its first step, DDP has but one bucket.
    futures.clear()
    model.module.watch = wait_for_end
    loss = model(batch).sum()
    before = engine_operations()
    loss.backward()
    assert len(futures) == 2
    assert finished == [overlap]
    # One for each message: the engine agrees on the lengths by itself.
    assert engine_operations() - before == (2 if overlap else 1)


@pytest.mark.parametrize("overlap", [True, False])
def test_overlaps_with_backward(ranks: Ranks, overlap: bool) -> None:
    ranks.run(overlaps, overlap)


def lost_in_backward(lost: int) -> str:
    model = DistributedDataParallel(nn.Linear(FEATURES, 64))
    attach(model, make_state("diana"))
    model(batch_of(0)).sum().backward()
    return leave_or_go_backward(model(batch_of(1)).sum(), lost)


def test_a_lost_rank_is_named_by_backward(new_ranks: Callable[..., Ranks]) -> None:
    assert_others_survived(new_ranks(3).outcomes(lost_in_backward, 1), 1)


def starts_anew_after_a_failure() -> None:
    """What waited for the last bucket of a step that failed is not sent with the next."""
    state = make_state("feedback", overlap=False, compressor="sign")
    model = DistributedDataParallel(Breaking(), bucket_cap_mb=0.001)
    attach(model, state)
    model(batch_of(0)).sum().backward()
    model.module.breaks = True
    with pytest.raises(ZeroDivisionError):
        model(batch_of(0)).sum().backward()
    assert state.waiting
    residual = state.residuals.of(model.module.second.weight)
    before = residual.clone()
    train(Plain, dist.group.WORLD, prepare=with_hook(state))
    assert not state.waiting
    assert residual.equal(before)
    assert residual.any()


def test_a_failed_step_leaves_nothing(ranks: Ranks) -> None:
    ranks.run(starts_anew_after_a_failure)


@pytest.mark.timeout(180)
def test_example() -> None:
    torchrun = str(Path(sys.executable).parent / "torchrun")
    output = subprocess.run(
        [torchrun, "--standalone", "--nproc-per-node", "2", str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
    ).stdout
    assert "step 20: loss" in output
