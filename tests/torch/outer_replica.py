"""One replica as a process of its own: trains a small model, tells each commit on its standard
output, and kills itself in a chosen phase. Tests and benchmarks run it."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import signal
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn

from sparsewire.errors import Error
from sparsewire.torch import outer
from sparsewire.torch.outer.phases import Phase
from sparsewire.torch.outer.round_thread import RoundThread
from sparsewire.torch.outer.rounds import Rounds


def tell(kind: str, **what: Any) -> None:
    """One line for the process that watches."""
    print(json.dumps({"kind": kind, "at": time.time(), **what}), flush=True)


def kill_at(phase: Phase, number: int) -> None:
    """Kill this process when its rounds enter this phase, of round `number` or later."""
    enter = RoundThread.enter

    def watched(self: RoundThread, entered: Phase) -> None:
        if entered is phase and self._state.rounds >= number:
            tell("dies", phase=phase.name, round=self._state.rounds)
            os.kill(os.getpid(), signal.SIGKILL)
        enter(self, entered)

    RoundThread.enter = watched  # type: ignore[method-assign]


def tell_commits() -> None:
    """Tell each commit, with a digest of the shared state after it."""
    commit = Rounds.commit

    def told(self: Rounds) -> None:
        commit(self)
        if self.has_state:
            state = self._state
            digests = [each.shared.digest() for each in state.fragments]
            tell("commit", round=state.rounds, digest=hashlib.md5(b"".join(digests)).hexdigest())

    Rounds.commit = told  # type: ignore[method-assign]


def model_of(width: int) -> nn.Module:
    torch.manual_seed(os.getpid())  # Replicas begin with different weights.
    return nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, 1))


def train(optimizer: outer.OuterOptimizer, model: nn.Module, inner: Any, given: Any) -> None:
    """Train until so many rounds have been committed."""
    generator = torch.Generator().manual_seed(os.getpid())
    while optimizer.rounds < given.rounds:
        x = torch.randn(8, 20, generator=generator)
        loss: Tensor = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        inner.zero_grad()
        loss.backward()
        inner.step()
        time.sleep(given.step_s)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("name")
    parser.add_argument("--expect", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--deadline", type=float, default=math.inf)
    parser.add_argument("--step-s", type=float, default=0.0)
    parser.add_argument("--compressor", default="dense")
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--die-in", choices=[phase.name for phase in Phase])
    parser.add_argument("--die-at", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.die_in:
        kill_at(Phase[given.die_in], given.die_at)
    tell_commits()
    model = model_of(given.width)
    inner = torch.optim.SGD(model.parameters(), 1 / given.width)
    try:
        live(model, inner, given)
    except Error as error:
        tell("failed", error=f"{type(error).__name__}: {error}")


def live(model: nn.Module, inner: Any, given: Any) -> None:
    """Join the others, and train."""
    begun = time.time()
    with outer.OuterOptimizer(
        model,
        inner,
        every=given.every,
        compressor=given.compressor,
        membership=outer.meeting_at(given.address, given.name, given.expect),
        deadline=given.deadline,
        timeout=60.0,
        **given.options,
    ) as optimizer:
        tell("joined", round=optimizer.rounds, seconds=time.time() - begun)
        train(optimizer, model, inner, given)
        tell("done", **optimizer.stats())


if __name__ == "__main__":
    sys.exit(main())
