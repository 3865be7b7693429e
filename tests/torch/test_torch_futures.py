"""Futures of all_reduce: callbacks, errors in them, and collectives that callbacks issue."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

from sparsewire.torch.calls.futures import Callbacks, Future


def future_of(tensor: torch.Tensor) -> Any:
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    return work.get_future()


def chains() -> None:
    size = float(dist.get_world_size())
    future = future_of(torch.ones(2))
    doubled = future.then(lambda done: done.value()[0] * 2)
    plus_one = doubled.then(lambda done: done.value() + 1)
    assert plus_one.wait().eq(2 * size + 1).all()
    assert plus_one.done()
    # Attached after the end, a callback runs all the same.
    assert future.then(lambda done: done.wait()[0].sum()).wait() == 2 * size
    futures = [future_of(torch.ones(i)) for i in range(4)]
    assert len(torch.futures.wait_all(futures)) == 4
    assert len(torch.futures.collect_all(futures).wait()) == 4


def test_chains_of_callbacks(ranks: Ranks) -> None:
    ranks.run(chains)


def raising() -> None:
    def fail(done: Any) -> None:
        raise KeyError("mine")

    failed = future_of(torch.ones(2)).then(fail)
    followed = failed.then(lambda done: done.value())
    for future in (failed, followed):
        with pytest.raises(KeyError, match="mine"):
            future.wait()


def test_errors_of_callbacks_keep_their_type(ranks: Ranks) -> None:
    ranks.run(raising)


def waiting_for_later_futures() -> None:
    later: list[Any] = []

    def wait_for_later(done: Any) -> torch.Tensor:
        while not later:
            time.sleep(0.001)
        return done.value()[0] + later[0].wait()

    first = future_of(torch.ones(2)).then(wait_for_later)
    later.append(future_of(torch.ones(2)).then(lambda done: done.value()[0] * 10))
    assert first.wait().eq(11 * dist.get_world_size()).all()


def test_a_callback_may_wait_for_a_later_future(ranks: Ranks) -> None:
    ranks.run(waiting_for_later_futures)


def collectives_in_callbacks(rounds: int) -> None:
    """Callbacks and the main thread issue collectives of one shape, in no common order."""
    size = float(dist.get_world_size())
    delays = random.Random(dist.get_rank())

    def innermost(done: Any) -> torch.Tensor:
        return future_of(done.value()[0]).wait()[0]

    def again(done: Any) -> list[torch.Tensor]:
        time.sleep(delays.random() * 0.003)
        total = done.value()[0].clone()
        dist.all_reduce(total)
        dist.broadcast(total, src=0)
        return [future_of(total).then(innermost).wait()]

    futures = []
    for number in range(rounds):
        futures.append(future_of(torch.full((4,), float(number))).then(again).then(again))
        time.sleep(delays.random() * 0.003)
        tensor = torch.full((4,), 1000.0 + number)
        dist.all_reduce(tensor)
        assert tensor.eq(size * (1000.0 + number)).all()
    for number, future in enumerate(futures):
        # One sum at first, and three in each of two rounds of callbacks.
        assert future.wait()[0].eq(number * size**7).all()


def test_callbacks_may_issue_collectives(ranks: Ranks) -> None:
    ranks.run(collectives_in_callbacks, 20)


@pytest.mark.skipif(torch.version.cuda is None, reason="needs a torch that knows of CUDA")
def test_errors_keep_their_type_in_futures_of_devices() -> None:
    """No GPU is needed: nothing is on it."""
    callbacks = Callbacks(1)

    def fail() -> None:
        raise KeyError("typed")

    failed = Future.of(fail, callbacks, [torch.device("cuda", 0)])
    chained = failed.then(lambda done: done.value())
    for future in (failed, chained):
        with pytest.raises(KeyError, match="typed"):
            future.wait()
    if not torch.cuda.is_available():
        # Torch then refuses to record where the device's streams are.
        with pytest.raises(RuntimeError, match="CUDA"):
            Future.of(lambda: [torch.ones(2)], callbacks, [torch.device("cuda", 0)]).wait()
    callbacks.close()
