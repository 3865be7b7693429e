"""Loss scaling over sums in fixed point: what overflows on one rank is seen by the scalers of all,
which skip the step and go on, as over gloo; with the hooks, too."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from compressing import assert_same_everywhere, attach, group_of, make_state
from models import FEATURES, batch_of
from support import run_ranks, serving
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import sparsewire.torch
from sparsewire.torch import hooks

WORLD_SIZE = 3
STEPS = 5
OVERFLOWING = 2
SCALE = 1024.0

Attach = Callable[[DistributedDataParallel, Any], None]


def with_none(model: DistributedDataParallel, group: Any) -> None:
    """Gradients are averaged as they are."""


def with_fp16(model: DistributedDataParallel, group: Any) -> None:
    model.register_comm_hook(group, default_hooks.fp16_compress_hook)


def with_top_k(model: DistributedDataParallel, group: Any) -> None:
    state = hooks.TopKState(group, k=4, span=16)
    model.register_comm_hook(state, hooks.topk_hook)


def with_feedback(model: DistributedDataParallel, group: Any) -> None:
    attach(model, make_state("feedback", group))


def with_diana(model: DistributedDataParallel, group: Any) -> None:
    attach(model, make_state("diana", group))


def train(group: Any, attach_hook: Attach, value: float) -> tuple[list[bool], list[float], Tensor]:
    """Which steps changed nothing, the scales behind them, and the weights at the end."""
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(FEATURES, 40), process_group=group)
    attach_hook(model, group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    skipped, scales = [], []
    for step in range(STEPS):
        batch = batch_of(step)
        if step == OVERFLOWING and dist.get_rank() == 1:
            batch[0, 3] = value
        before = model.module.weight.detach().clone()
        optimizer.zero_grad()
        # Of the weights, one column alone becomes infinite or NaN.
        scaler.scale(model(batch).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        skipped.append(bool(model.module.weight.equal(before)))
        scales.append(scaler.get_scale())
        assert_same_everywhere(model.module.weight.detach())
    return skipped, scales, model.module.weight.detach()


def scale_losses(hooks_to_attach: list[Attach], store: str) -> int:
    """How many datagrams a rank sent."""
    dist.init_process_group(
        "sparsewire",
        init_method=store,
        rank=int(os.environ["RANK"]),
        world_size=WORLD_SIZE,
        timeout=timedelta(seconds=30),
    )
    for attach_hook, value in itertools.product(hooks_to_attach, (math.inf, math.nan)):
        expected = train(group_of("gloo"), attach_hook, value)
        assert expected[0] == [step == OVERFLOWING for step in range(STEPS)]
        assert expected[1] == [SCALE] * OVERFLOWING + [SCALE / 2] * (STEPS - OVERFLOWING)
        assert expected[2].isfinite().all()
        actual = train(dist.group.WORLD, attach_hook, value)
        assert actual[:2] == expected[:2]
        torch.testing.assert_close(actual[2], expected[2])
    sent: int = sparsewire.torch.stats()["datagrams_sent"]
    dist.destroy_process_group()
    return sent


@pytest.mark.parametrize(
    "hooks_to_attach",
    [[with_none, with_fp16], [with_top_k, with_feedback, with_diana]],
    ids=["summed", "compressed"],
)
def test_step_is_skipped_on_all_ranks(hooks_to_attach: list[Attach], tmp_path: Path) -> None:
    with serving(transport="udp") as server:
        environment = {
            "SPARSEWIRE_AGGREGATORS": str(server.address),
            "SPARSEWIRE_TRANSPORT": "udp",
            "SPARSEWIRE_ARITHMETIC": "fixed",
        }
        store = f"file://{tmp_path}/store"
        sent = run_ranks(WORLD_SIZE, scale_losses, hooks_to_attach, store, environment=environment)
    # Where aggregators are dedicated, compressed messages cross as sums of int32.
    assert min(sent) > 0
