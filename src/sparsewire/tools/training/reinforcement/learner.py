"""The learner: the policy's float32 masters, and steps along the gradient of the reward."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sparsewire.tools.training.reinforcement.policy import log_chances
from sparsewire.tools.training.reinforcement.reversal import COUNT, rewards
from sparsewire.tools.training.reinforcement.samples import Batch

CLIP = 0.2
MAX_NORM = 1.0


class Masters:
    """AdamW on float32 copies of parameters in bfloat16, which get the rounded values."""

    def __init__(self, parameters: Iterable[nn.Parameter], rate: float, warmup: int = 1) -> None:
        self._parameters = list(parameters)
        self._masters = [nn.Parameter(own.detach().float()) for own in self._parameters]
        self._optimizer = torch.optim.AdamW(
            self._masters, lr=rate, betas=(0.9, 0.99), weight_decay=0.0, foreach=True
        )
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda step: min(1.0, (step + 1) / warmup)
        )

    def step(self) -> None:
        """Take a step along the parameters' gradients, and drop these."""
        for master, own in zip(self._masters, self._parameters, strict=True):
            assert own.grad is not None
            master.grad = own.grad.float()
            own.grad = None
        nn.utils.clip_grad_norm_(self._masters, MAX_NORM)
        self._optimizer.step()
        self._schedule.step()
        with torch.no_grad():
            for master, own in zip(self._masters, self._parameters, strict=True):
                own.copy_(master)


def learn(policy: nn.Module, masters: Masters, batch: Batch, group: int) -> float:
    """Take a step with a batch, which has `group` answers to each prompt; returns its reward."""
    earned = rewards(batch.tokens)
    now = log_chances(policy, batch.tokens, COUNT)
    loss = surrogate(now, batch.log_chances, advantages(earned, group))
    loss.backward()  # type: ignore[no-untyped-call]
    masters.step()
    return float(earned.mean())


def advantages(earned: Tensor, group: int) -> Tensor:
    """How much better each answer is than its group's others, in their standard deviations.

    Answers to one prompt stand together, `group` of them.
    """
    grouped = earned.view(-1, group)
    deviation = grouped.std(dim=1, keepdim=True) + 1e-4
    return ((grouped - grouped.mean(dim=1, keepdim=True)) / deviation).view(-1)


def surrogate(now: Tensor, then: Tensor, advantages: Tensor) -> Tensor:
    """PPO's clipped loss; `now` and `then` are logarithms of chances, [batch, length].

    `then` is of the weights that have sampled, which may be some versions old.
    """
    ratio = (now - then).exp()
    clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
    gain = torch.minimum(ratio * advantages[:, None], clipped * advantages[:, None])
    return -gain.mean()
