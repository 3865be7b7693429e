"""Membership by a store: whoever comes and goes, all that agree on an epoch have one list."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._C._distributed_c10d import PrefixStore

from sparsewire.errors import Error, Timeout
from sparsewire.torch.outer import StoreMembership, meeting_at
from sparsewire.torch.outer.membership.membership import Epoch, Excluded

pytestmark = pytest.mark.timeout(60)

WAIT_S = 10.0
# Long beside what a meeting of threads takes, so that nobody is left out for being slow.
PATIENT_S = 9.0


class Job:
    """Replicas as memberships of one store; each call to one is made in a thread."""

    def __init__(self, expect: int, grace: float = PATIENT_S) -> None:
        self.store = PrefixStore("job", dist.HashStore())
        self.expect = expect
        self.grace = grace
        self.members: dict[str, StoreMembership] = {}
        self.epochs: dict[str, Epoch] = {}
        self.joining: dict[str, Future[Epoch]] = {}
        self._pool = ThreadPoolExecutor(32)

    def membership(self, name: str, **settings: Any) -> StoreMembership:
        return StoreMembership(
            self.store, name, self.expect, **{"grace": self.grace, "timeout": WAIT_S, **settings}
        )

    def join(self, name: str) -> None:
        """A new replica asks to join."""
        self.members[name] = self.membership(name)
        self.joining[name] = self._pool.submit(self.members[name].reconfigure, None, ())

    def ask_again(self, name: str) -> None:
        """A replica without which the others went on asks to join."""
        self.joining[name] = self._pool.submit(self.members[name].reconfigure, None, ())

    def asked(self, count: int) -> None:
        """Wait until so many replicas have asked to join since the job began."""
        self.store.wait([f"wish/{count - 1}"], timedelta(seconds=WAIT_S))

    def meet(self, lost: dict[str, list[str]]) -> Epoch:
        """The members of now, but for the lost, agree on the next epoch."""
        calls = {
            name: self._pool.submit(self.members[name].reconfigure, self.epochs[name], known)
            for name, known in lost.items()
        }
        return self._agreed({name: call.result(WAIT_S) for name, call in calls.items()})

    def begin(self) -> Epoch:
        """The first replicas find each other."""
        joined = {name: call.result(WAIT_S) for name, call in self.joining.items()}
        self.joining.clear()
        return self._agreed(joined)

    def _agreed(self, epochs: dict[str, Epoch]) -> Epoch:
        """What all say alike; whom it lets in says so, too."""
        let_in = next(iter(epochs.values())).members
        for name in [name for name in let_in if name in self.joining]:
            epochs[name] = self.joining.pop(name).result(WAIT_S)
        assert len({(each.number, each.members) for each in epochs.values()}) == 1
        assert all(epoch.name == name for name, epoch in epochs.items())
        self.epochs = epochs
        return epochs[let_in[0]]


Changes = st.lists(
    st.tuples(st.sets(st.integers(0, 5)), st.integers(0, 2), st.integers(0, 5), st.booleans()),
    max_size=5,
)


@settings(max_examples=25)
@given(first=st.integers(1, 4), changes=Changes)
def test_all_that_agree_have_one_list(first: int, changes: list[Any]) -> None:
    job = Job(first)
    names = [f"first-{number}" for number in range(first)]
    for name in names:
        job.join(name)
    assert sorted(job.begin().members) == names
    asked = first
    for number, (dying, joiners, witness, is_early) in enumerate(changes):
        members = list(job.epochs)
        dead = [name for at, name in enumerate(members) if at in dying][: len(members) - 1]
        left = [name for name in members if name not in dead]
        new = [f"new-{number}-{joiner}" for joiner in range(joiners)]
        for name in new:
            job.join(name)
        asked += joiners
        if is_early:
            job.asked(asked)
        # One member knows who is lost, as all do once the first lost connection is told.
        knows = left[witness % len(left)]
        epoch = job.meet({name: dead if name == knows else [] for name in left})
        assert [name for name in epoch.members if name in left] == [
            name for name in members if name in left
        ]
        assert not set(epoch.members) & set(dead)
        assert not is_early or set(new) <= set(epoch.members)
    if job.joining:
        job.asked(asked)
        job.meet({name: [] for name in job.epochs})
    assert not job.joining


def begun(*names: str, grace: float = PATIENT_S) -> Job:
    job = Job(len(names), grace)
    for name in names:
        job.join(name)
    job.begin()
    return job


def test_newcomers_join_a_job_whose_first_replicas_were_named() -> None:
    job = Job(1)
    job.members["a"] = job.membership("a", first=["a"])
    job.epochs["a"] = job.members["a"].reconfigure(None, ())
    job.join("b")
    job.asked(1)
    with pytest.raises(TimeoutError):  # It begins no job of its own.
        job.joining["b"].result(0.1)
    assert job.meet({"a": []}).members == ("a", "b")


def test_a_store_is_of_one_job() -> None:
    job = begun("b")
    with pytest.raises(Error, match="a job of the replicas b has begun in this store"):
        job.membership("a", first=["a"]).reconfigure(None, ())


def test_who_comes_late_to_a_meeting_leads_no_newcomer_back_to_it() -> None:
    job = begun("a", "b", grace=0.2)
    before = job.epochs["b"]
    job.meet({"a": ["b"]})
    job.meet({"a": []})
    with pytest.raises(Excluded):
        job.members["b"].reconfigure(before, ())
    assert job.store.get("meeting") == b"2"


def test_who_is_lost_unknown_to_all_is_not_waited_for_long() -> None:
    job = begun("a", "b", grace=0.2)
    assert job.meet({"a": []}).members == ("a",)


def test_who_comes_too_late_is_excluded_and_may_join_again_and_again() -> None:
    job = begun("a", "b")
    for wishes in (3, 4):
        before = job.epochs["b"]
        job.meet({"a": ["b"]})
        with pytest.raises(Excluded, match="'b'"):
            job.members["b"].reconfigure(before, ())
        job.ask_again("b")
        job.asked(wishes)
        assert set(job.meet({"a": []}).members) == {"a", "b"}


class SlowStore(PrefixStore):
    """A job's store, through which a replica says late that it is there."""

    def __init__(self, store: Any) -> None:
        super().__init__("job", store)
        self.may_speak = threading.Event()

    def set(self, key: str, value: str) -> None:
        if "/here/" in key:
            assert self.may_speak.wait(WAIT_S)
        super().set(key, value)


def test_a_newcomer_that_misses_a_meeting_is_let_in_at_the_next() -> None:
    job = begun("a")
    slow = SlowStore(job.store.underlying_store)
    job.members["late"] = StoreMembership(slow, "late", 1, timeout=WAIT_S)
    job.ask_again("late")
    job.asked(2)
    assert job.meet({"a": ["late"]}).members == ("a",)
    slow.may_speak.set()
    job.asked(3)
    assert job.members["a"].wishes(job.epochs["a"])
    assert job.meet({"a": []}).members == ("a", "late")


def test_members_are_told_of_wishes_until_they_are_answered() -> None:
    job = begun("a")
    assert not job.members["a"].wishes(job.epochs["a"])
    job.join("b")
    job.asked(2)
    assert job.members["a"].wishes(job.epochs["a"])
    job.meet({"a": []})
    assert not job.members["a"].wishes(job.epochs["a"])
    assert not job.members["b"].wishes(job.epochs["b"])


def test_a_wish_of_a_replica_that_died_holds_nobody_up_for_long() -> None:
    job = begun("a", grace=0.2)
    job.store.set("wish/1", "ghost")
    assert job.meet({"a": []}).members == ("a",)
    assert not job.members["a"].wishes(job.epochs["a"])


def test_a_replica_that_nobody_lets_in_says_so() -> None:
    job = begun("a")
    with pytest.raises(Timeout, match=r"'b' waited 0\.1 s .* are the others at work"):
        job.membership("b", timeout=0.1).reconfigure(None, ())


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "nowhere", "127.0.0.1:port"])
def test_where_nobody_serves_a_meeting_that_is_said(
    address: str, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(Timeout, match="sparsewire meeting"):
        meeting_at(address.format(port=free_port), "a", 1, timeout=0.5)
