"""A reader's loop: it samples batch after batch, and applies new weights between two of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import NamedTuple

import torch

from sparsewire.tools.training.reinforcement.order import Order
from sparsewire.tools.training.reinforcement.policy import Policy, log_chances, sample
from sparsewire.tools.training.reinforcement.reversal import COUNT, prompts, rewards
from sparsewire.tools.training.reinforcement.samples import Batch
from sparsewire.tools.training.reinforcement.transfer import Reader


class Applied(NamedTuple):
    """A version that a reader applied at a time: `waited_s` is how long nothing was sampled because
    it had not come yet, `pause_s` how long applying took."""

    version: int
    at: float
    waited_s: float
    pause_s: float
    nbytes: int


class Sampled(NamedTuple):
    """A batch, sampled with a version, that was done at a time."""

    version: int
    at: float
    reward: float


class SamplingLoop:
    """Samples a batch for each version, with the weights of `order.lag` versions before.

    So what is sampled does not depend on how fast anybody is.
    """

    def __init__(self, order: Order, policy: Policy, reader: Reader, seed: int) -> None:
        self._order, self._policy, self._reader = order, policy, reader
        self._generator = torch.Generator().manual_seed(seed)
        self._coming: Future[None] | None = None
        self.applied: list[Applied] = []
        self.sampled: list[Sampled] = []

    def run(self, pool: Executor, send: Callable[[int, Batch], None]) -> None:
        """Sample all batches, send each with its number, and end with the last version."""
        self._coming = pool.submit(self._reader.get)
        for number in range(self._order.versions):
            self._catch_up(pool, number - self._order.lag)
            send(number, self._sample())
        self._catch_up(pool, self._order.versions)

    def told(self) -> dict[str, list[dict[str, object]]]:
        """What it has done, as JSON takes it."""
        return {
            "applied": [row._asdict() for row in self.applied],
            "sampled": [row._asdict() for row in self.sampled],
        }

    def _catch_up(self, pool: Executor, wanted: int) -> None:
        """Wait for versions and apply them, up to `wanted`."""
        while self._coming and self._reader.version < wanted:
            begin = time.perf_counter()
            self._coming.result()
            came = time.perf_counter()
            nbytes = self._reader.apply()
            pause = time.perf_counter() - came
            version = self._reader.version
            self.applied.append(Applied(version, time.time(), came - begin, pause, nbytes))
            is_last = version == self._order.versions
            self._coming = None if is_last else pool.submit(self._reader.get)

    def _sample(self) -> Batch:
        order = self._order
        batch = sampled(
            self._policy, self._reader.version, order.prompts, order.answers, self._generator
        )
        reward = float(rewards(batch.tokens).mean())
        self.sampled.append(Sampled(batch.version, time.time(), reward))
        return batch


def sampled(
    policy: Policy, version: int, count: int, answers: int, generator: torch.Generator
) -> Batch:
    """Answers, so many to each of `count` prompts, by a policy that is at this version."""
    asked = prompts(count, generator).repeat_interleave(answers, 0)
    tokens = sample(policy, asked, COUNT, generator)
    with torch.no_grad():
        return Batch(version, tokens, log_chances(policy, tokens, COUNT))
