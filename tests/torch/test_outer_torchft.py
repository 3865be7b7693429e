"""Replicas whom torchft's lighthouse knows: they begin, join, leave and die."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest
import torch

pytest.importorskip("torchft")

from outer_threads import net, shared, train_step
from torchft.coordination import LighthouseServer

from sparsewire.errors import Timeout
from sparsewire.torch.outer import OuterOptimizer
from sparsewire.torch.outer.membership import torchft as by_torchft
from sparsewire.torch.outer.membership.torchft import TorchftMembership

SILENCE_MS = 500
ROUNDS = 6


@pytest.fixture
def lighthouse() -> Iterator[str]:
    server = LighthouseServer(
        bind="127.0.0.1:0",
        min_replicas=2,
        join_timeout_ms=30_000,
        heartbeat_timeout_ms=SILENCE_MS,
    )
    port = server.address().rpartition(":")[2]
    yield f"http://127.0.0.1:{port}"
    server.shutdown()


class Replica:
    """A replica in a thread, which trains until `until` says so; `ended` has its last state.

    Its rounds go on then, without contributions.
    """

    def __init__(self, lighthouse: str, rank: int, until: Callable[[OuterOptimizer], bool]) -> None:
        self.ended: Future[Any] = Future()
        self._arguments = lighthouse, rank, until
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self.ended.set_result(self._trained(*self._arguments))
        except BaseException as error:
            self.ended.set_exception(error)

    def _trained(
        self, lighthouse: str, rank: int, until: Callable[[OuterOptimizer], bool]
    ) -> tuple[int, bytes, dict[str, Any]]:
        membership = TorchftMembership(lighthouse, f"replica-{rank}", timeout=40)
        model = net(rank)
        inner = torch.optim.SGD(model.parameters(), 0.05)
        optimizer = OuterOptimizer(
            model, inner, every=2, membership=membership, deadline=0.3, timeout=5
        )
        self.optimizer = optimizer
        step = 0
        while not until(optimizer):
            train_step(model, inner, rank, step)
            step += 1
            time.sleep(0.01)
        return optimizer.rounds, shared(optimizer), optimizer.stats()

    def result(self) -> tuple[int, bytes, dict[str, Any]]:
        ended: tuple[int, bytes, dict[str, Any]] = self.ended.result(50)
        return ended


def after(rounds: int) -> Callable[[OuterOptimizer], bool]:
    return lambda optimizer: optimizer.rounds >= rounds


def end(replicas: list[Replica]) -> None:
    """Close all; one that waits for a quorum hears that its Manager is gone."""
    closing = [threading.Thread(target=each.optimizer.close, daemon=True) for each in replicas]
    for thread in closing:
        thread.start()
    for each in replicas:
        each.optimizer._thread._members._membership.close()
    for thread in closing:
        thread.join(20)
        assert not thread.is_alive()


def test_replicas_begin_and_one_joins(lighthouse: str) -> None:
    def together(optimizer: OuterOptimizer) -> bool:
        return optimizer.stats()["members"] == 3 and optimizer.rounds >= ROUNDS

    first = [Replica(lighthouse, rank, together) for rank in range(2)]
    while not hasattr(first[0], "optimizer") or first[0].optimizer.rounds < 2:
        assert not first[0].ended.done(), first[0].result()
        time.sleep(0.01)
    replicas = [*first, Replica(lighthouse, 2, together)]
    ended = [each.result() for each in replicas]
    assert min(rounds for rounds, _, _ in ended) >= ROUNDS
    assert all(stats["members"] == 3 and not stats["lost"] for _, _, stats in ended)
    known = dict[int, bytes]()
    assert all(known.setdefault(rounds, digest) == digest for rounds, digest, _ in ended)
    end(replicas)


def test_the_others_go_on_when_one_dies(lighthouse: str) -> None:
    def dies(optimizer: OuterOptimizer) -> bool:
        if optimizer.rounds < 3:
            return False
        members = optimizer._thread._members
        members._membership.close()  # Its heartbeats end, as those of a process that died.
        members.communicator.abort("the replica dies")
        return True

    def alone(optimizer: OuterOptimizer) -> bool:
        return optimizer.stats()["members"] == 2 and optimizer.rounds >= ROUNDS

    replicas = [
        Replica(lighthouse, 0, alone),
        Replica(lighthouse, 1, alone),
        Replica(lighthouse, 2, dies),
    ]
    survivors = [each.result() for each in replicas[:2]]
    for _, _, stats in survivors:
        (lost,) = stats["lost"]
        assert lost.startswith("replica-2-")
    end(replicas)


def test_no_lighthouse(free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_torchft, "_CONNECT", timedelta(seconds=0.3))
    with pytest.raises(Timeout, match="torchft_lighthouse"):
        TorchftMembership(f"http://127.0.0.1:{free_port}", "nobody")
