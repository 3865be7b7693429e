"""What goes wrong while replicas meet, or while one is given the shared state: the others go on,
and whoever can be served is served the next time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch.distributed as dist
from outer_threads import together
from test_outer_late import WAIT_S, Walker
from torch._C._distributed_c10d import PrefixStore, TCPStore

from sparsewire.errors import Error, Timeout
from sparsewire.torch.outer import StoreMembership, joining, members, round_thread
from sparsewire.torch.outer.joining import Copying
from sparsewire.torch.outer.members import Members
from sparsewire.torch.outer.membership.membership import Epoch
from sparsewire.torch.outer.stats import Counters

pytestmark = pytest.mark.timeout(60)


def fails_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose first call breaks its communicator and raises."""
    first = threading.Lock()

    def failing(communicator: Any, *others: Any) -> Any:
        if first.acquire(blocking=False):
            communicator.abort("a test broke it")
            raise Error("a test broke it")
        return function(communicator, *others)

    return failing


def begins(rank: int, membership: Any) -> bytes:
    walker = Walker(rank, membership)
    with walker.outer as outer:
        walker.steps_until(2)
        outer.sync()
        return b"".join(each.numpy().tobytes() for each in outer.state_dict()["shared"].values())


@pytest.mark.parametrize("side", ["give", "take"])
def test_who_breaks_off_as_the_job_begins_costs_a_meeting(
    side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_thread, side, fails_once(getattr(round_thread, side)))
    first, second = together(2, begins)
    assert first == second


def alone_and(other: Callable[[Any], Any]) -> tuple[Any, dict[str, Any]]:
    """What the other one returns beside a job of one replica, and what that counted by then."""
    store = dist.HashStore()
    membership = StoreMembership(store, "first", 1, grace=0.5, first=["first"])
    walker = Walker(0, membership)
    pool = ThreadPoolExecutor(1)
    with walker.outer:
        found = pool.submit(other, store)
        ends = time.monotonic() + WAIT_S
        while not found.done() and time.monotonic() < ends:
            walker.step()
    pool.shutdown(wait=False)
    return found.result(0), walker.outer.stats()


def joins(store: Any) -> int:
    walker = Walker(1, StoreMembership(store, "new", 1, timeout=WAIT_S))
    with walker.outer as outer:
        members: int = outer.stats()["members"]
        return members


@pytest.mark.parametrize("side", ["give", "take"])
def test_a_copy_that_broke_off_is_taken_again(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, side, fails_once(getattr(joining, side)))
    members, _ = alone_and(joins)
    assert members == 2


def dies_as_it_meets(store: Any) -> None:
    store.set("1/here/ghost", "[]")
    store.set("wish/0", "ghost")
    store.wait(["2/list"], timedelta(seconds=8.0))


def test_who_dies_between_the_meeting_and_its_connections_holds_nobody_up_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members, "_CONNECT_S", 0.5, raising=False)
    _, stats = alone_and(dies_as_it_meets)
    assert stats["members"] == 1


class Unheard(StoreMembership):
    asked = 0

    def reconfigure(self, last: Any, lost: Any) -> Epoch:
        self.asked += 1
        return super().reconfigure(last, lost)


def test_a_replica_that_nobody_lets_in_waits_once() -> None:
    membership = Unheard(dist.HashStore(), "unheard", 2, timeout=0.1)
    with pytest.raises(Timeout, match="was not let in"):
        Walker(0, membership)
    assert membership.asked == 1


def test_a_copy_whose_other_end_is_dead_leaves_the_store_to_rounds() -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store = TCPStore("127.0.0.1", server.port)
    epoch = Epoch(0, ("dead", "taker"), 1, PrefixStore("epoch", store))
    taker = Members(StoreMembership(store, "taker", 2), 4.0, Counters(), 0)
    before = server.num_keys()
    copying = Copying(partial(taker.connected_pair, epoch, "copy", 1), None, 4.0)
    while server.num_keys() == before:
        time.sleep(0.01)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(store.check, ["anything"]).result(2.0) is False
    with pytest.raises(Timeout):
        copying.snapshot.result(WAIT_S)


def slow_beside_one_that_vanishes(rank: int, membership: Any) -> dict[str, Any]:
    """Replica 2 ends in the middle of its steps, and those of replica 1 take their time."""
    walker = Walker(rank, membership, deadline=math.inf)
    with walker.outer as outer:
        walker.step()
        if rank < 2:
            time.sleep(2.5 * rank)  # Longer than a meeting waits for members.
            walker.step()
            walker.step()
        return outer.stats()


def test_who_is_at_its_steps_comes_to_meetings_all_the_same() -> None:
    first, second, _ = together(3, slow_beside_one_that_vanishes)
    for stats in (first, second):
        assert stats["members"] == 2
        assert stats["epochs"] == 2
        assert stats["contributed"] == 3


class Broken(StoreMembership):
    """Knows nobody, and cannot be closed."""

    def reconfigure(self, last: Any, lost: Any) -> Epoch:
        raise ValueError("nobody is known")

    def close(self) -> None:
        raise ValueError("a test cannot be closed")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_membership_that_cannot_be_closed_holds_nobody_up() -> None:
    with pytest.raises(ValueError, match="nobody is known"):
        Walker(0, Broken(dist.HashStore(), "broken", 1))
