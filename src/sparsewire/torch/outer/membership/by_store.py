"""Membership by a key-value store: who is there says so, and the first proposal counts.

A store compares and sets in one step, so all members read one list, whoever wrote it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from sparsewire.errors import Error, Timeout
from sparsewire.torch.outer.membership.membership import (
    Epoch,
    Excluded,
    Membership,
    Unanswered,
)

_POLL_S = 0.01
_MEETING = "meeting"


class Meeting(NamedTuple):
    """What the members of an epoch wrote down: their names, and how many wishes they answered."""

    members: list[str]
    wishes: int


class StoreMembership(Membership):
    """Members that meet in a store of torch.distributed, which must outlive each of them.

    `name` is this replica's, unlike all others', also those of earlier lives. A job begins once
    `expect` replicas are there; later ones join it. `grace`: seconds that a meeting waits for
    members that nobody knows to be lost; then the others go on without. `timeout`: seconds that a
    newcomer waits to be let in.
    """

    def __init__(
        self,
        store: Any,
        name: str,
        expect: int,
        *,
        grace: float = 2.0,
        timeout: float = 600.0,
        first: Sequence[str] | None = None,
    ) -> None:
        self._store = store
        self.name = name
        self._expect = expect
        self._grace = grace
        self._timeout = timeout
        self._first = first
        self._answered = 0

    def reconfigure(self, last: Epoch | None, lost: Collection[str]) -> Epoch:
        try:
            if last is None:
                return self._begin()
            return self._meet(last.number + 1, last.members, lost)
        except dist.DistError as error:
            raise Error(
                f"the store in which replicas meet is gone ({error}): it must outlive them, as "
                "that of `sparsewire meeting` does"
            ) from error

    def wishes(self, epoch: Epoch) -> bool:
        try:
            return self._has(f"wish/{self._answered}")
        except dist.DistError:
            # Members train on without the store; if they must meet again, they are told.
            return False

    def _begin(self) -> Epoch:
        if self._first is not None:
            first, self._first = list(self._first), None
            return self._epoch(0, self._begun_by(first))
        return self._join()

    def _begun_by(self, first: list[str]) -> Meeting:
        """The job of these replicas, which is written down for those that join later.

        Raises Error if the store is that of another job.
        """
        self._found(Meeting(first, 0))
        begun = self._decided(0)
        assert begun is not None, "a proposal was made"
        if begun.members != first:
            raise Error(
                f"a job of the replicas {', '.join(begun.members)} has begun in this store, and "
                f"here is one of {', '.join(first)}: give each job a store, or a prefix, of its own"
            )
        return begun

    def _found(self, meeting: Meeting) -> None:
        """Begin a job, unless one has begun."""
        self._propose(0, meeting)
        self._open(0)

    def _join(self) -> Epoch:
        """Ask to join, and wait until an epoch has this replica."""
        wish = self._wish(self._answered)
        deadline = time.monotonic() + self._timeout
        seen = -1
        while time.monotonic() < deadline:
            current = self._current()
            if current is None:
                self._begin_if_enough()
            elif current != seen:
                # A meeting is on: be there, and see whether it lets this replica in.
                self._store.set(f"{current}/here/{self.name}", "[]")
                decided = self._decided(current)
                if decided is not None:
                    seen = current
                    if self.name in decided.members:
                        return self._epoch(current, decided)
                    if wish < decided.wishes:
                        # It was answered without this replica, which was not there in time.
                        wish = self._wish(decided.wishes)
            time.sleep(_POLL_S)
        raise Unanswered(
            f"replica {self.name!r} waited {self._timeout:g} s and was not let in: are the others "
            "at work, and do they meet at the same address?"
        )

    def _wish(self, first: int) -> int:
        """Ask to join by a wish that nobody has answered yet, `first` or later; its number."""
        number = first
        while self._store.compare_set(f"wish/{number}", "", self.name).decode() != self.name:
            number += 1
        return number

    def _begin_if_enough(self) -> None:
        """If enough replicas are there and nobody has begun, begin with all of them."""
        names = self._wished()
        if len(names) >= self._expect:
            self._found(Meeting(sorted(names), len(names)))

    def _meet(self, number: int, members: Sequence[str], lost: Collection[str]) -> Epoch:
        self._store.set(f"{number}/here/{self.name}", json.dumps(sorted(lost)))
        self._open(number)
        deadline = time.monotonic() + self._grace
        while (decided := self._decided(number)) is None:
            wished = self._wished()
            known = list(dict.fromkeys([*members, *wished]))
            here = [name for name in known if self._has(f"{number}/here/{name}")]
            awaited = {*known} - self._lost(number, here) - {*here}
            if not awaited or time.monotonic() > deadline:
                self._propose(number, Meeting(here, self._answered + len(wished)))
            else:
                time.sleep(_POLL_S)
        if self.name not in decided.members:
            raise Excluded(f"the others went on without replica {self.name!r}, which came too late")
        return self._epoch(number, decided)

    def _open(self, number: int) -> None:
        """Have newcomers come to this meeting, unless a later one is on."""
        current = ""
        while int(current or -1) < number:
            found = self._store.compare_set(_MEETING, current, str(number)).decode()
            if found == str(number):
                return
            current = found

    def _lost(self, number: int, here: Sequence[str]) -> set[str]:
        """The members that someone here knows to be lost."""
        found: set[str] = set()
        for name in here:
            found.update(json.loads(self._store.get(f"{number}/here/{name}")))
        return found

    def _epoch(self, number: int, decided: Meeting) -> Epoch:
        self._answered = decided.wishes
        rank = decided.members.index(self.name)
        store = PrefixStore(f"{number}/epoch", self._store)
        return Epoch(number, tuple(decided.members), rank, store)

    def _propose(self, number: int, meeting: Meeting) -> None:
        self._store.compare_set(f"{number}/list", "", json.dumps(meeting._asdict()))

    def _decided(self, number: int) -> Meeting | None:
        if not self._has(f"{number}/list"):
            return None
        return Meeting(**json.loads(self._store.get(f"{number}/list")))

    def _current(self) -> int | None:
        return int(self._store.get(_MEETING)) if self._has(_MEETING) else None

    def _wished(self) -> list[str]:
        """Names of the replicas that asked to join and have no answer yet, in their order."""
        names: list[str] = []
        while self._has(key := f"wish/{self._answered + len(names)}"):
            names.append(self._store.get(key).decode())
        return names

    def _has(self, *keys: str) -> bool:
        found: bool = self._store.check([*keys])
        return found


def meeting_at(
    address: str,
    name: str,
    expect: int,
    *,
    job: str = "job",
    grace: float = 2.0,
    timeout: float = 600.0,
) -> StoreMembership:
    """Membership by the store at `address` ("host:port"), which `serve_meeting` serves.

    Replicas of one `job` meet; a job that has ended leaves its name used. Other arguments are those
    of `StoreMembership`. Raises Timeout if nothing serves there.
    """
    host, _, port = address.rpartition(":")
    try:
        store = TCPStore(host, int(port), timeout=timedelta(seconds=min(timeout, 60.0)))
    except (dist.DistError, ValueError) as error:
        raise Timeout(
            f"no meeting of replicas at {address!r} ({error}): start `sparsewire meeting` "
            "there, and write HOST:PORT"
        ) from error
    # Replicas reach each other from the address that reaches the meeting, if nothing else is said.
    os.environ.setdefault("MASTER_ADDR", host)
    return StoreMembership(
        PrefixStore(f"sparsewire_outer/{job}", store), name, expect, grace=grace, timeout=timeout
    )


def serve_meeting(host: str, port: int) -> Any:
    """Serve a store in which replicas meet, for as long as the returned object lives.

    Its `port` is the one that was asked for, or one that was free for 0. Raises Error if nothing
    can listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # Torch itself would listen on every address of this host.
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise Error(
            f"cannot listen on port {port} of {host} ({error.strerror}): if another process has "
            "the port, choose another, and give replicas that"
        ) from error
    port = listener.getsockname()[1]
    return TCPStore(
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
