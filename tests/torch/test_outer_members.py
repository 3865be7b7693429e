"""Members of a job that come and go while it trains: killed in any phase, frozen, new, and leaving
in order. What is left is equal bit by bit, and nothing hangs."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from outer_processes import FOREVER, Job, Replica, await_round, until
from outer_threads import names_of, shared, together
from test_outer_late import BEGIN, Signals, Walker
from torch import Tensor

from sparsewire.errors import Error
from sparsewire.torch.outer import rounds
from sparsewire.torch.outer.phases import Phase
from sparsewire.torch.outer.records import agreed

pytestmark = [pytest.mark.timeout(120), pytest.mark.chaos]

ROUNDS = 7
DIES_AT = 3
SPARSE = ("--compressor", "span-top-k:16:64")


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job()
    yield made
    made.close()


def check_equal_bits(replicas: list[Replica]) -> None:
    """After each round that several have committed, all of these had the same bits."""
    rounds = sorted({number for each in replicas for number in each.digests})
    assert rounds
    for number in rounds:
        found = {each.digests[number] for each in replicas if number in each.digests}
        assert len(found) == 1, number


def ended(replica: Replica) -> dict[str, Any]:
    """The counts of a replica that trained to the end, and committed each round once, in order."""
    replica.end()
    numbers = [line["round"] for line in replica.lines("commit")]
    assert numbers == list(range(1, ROUNDS + 1))
    (done,) = replica.lines("done")
    return done


MORTAL = [Phase.WAITING, Phase.ARRIVING, Phase.ADDING, Phase.VOTING, Phase.COMMITTING]


@pytest.mark.parametrize("phase", MORTAL, ids=lambda phase: phase.name)
def test_others_go_on_without_a_replica_that_is_killed(job: Job, phase: Phase) -> None:
    options = ("--expect", 3, "--rounds", ROUNDS, *(SPARSE if phase is Phase.VOTING else ()))
    mortal = job.start("mortal", *options, "--die-in", phase.name, "--die-at", DIES_AT)
    others = [job.start(name, *options) for name in ("first", "second")]
    for each in others:
        done = ended(each)
        assert done["lost"] == ["mortal"]
        assert done["members"] == 2
        assert done["aborted"] <= 1
        assert (done["owed_lost"] > 0) == (phase is Phase.VOTING)
    mortal.end()
    assert mortal.process.exitcode == -signal.SIGKILL
    assert mortal.round == DIES_AT
    check_equal_bits([mortal, *others])


def test_others_go_on_without_two_of_which_one_dies_as_they_meet(job: Job) -> None:
    options = ("--expect", 4, "--rounds", ROUNDS)
    mortal = [
        job.start("mortal", *options, "--die-in", "VOTING", "--die-at", DIES_AT),
        job.start("mourner", *options, "--die-in", "MEETING", "--die-at", DIES_AT),
    ]
    others = [job.start(name, *options) for name in ("first", "second")]
    for each in others:
        assert sorted(ended(each)["lost"]) == ["mortal", "mourner"]
    for each in mortal:
        each.end()
        assert each.process.exitcode == -signal.SIGKILL
    check_equal_bits([*mortal, *others])


def test_the_last_one_goes_on_alone(job: Job) -> None:
    options = ("--expect", 2, "--rounds", ROUNDS)
    job.start("mortal", *options, "--die-in", "COMMITTING", "--die-at", DIES_AT)
    assert ended(job.start("last", *options))["members"] == 1


def test_a_newcomer_has_the_bits_of_the_others_from_its_first_round_on(job: Job) -> None:
    options = ("--rounds", FOREVER, "--step-s", 0.01, *SPARSE)
    others = [job.start(name, "--expect", 2, *options) for name in ("first", "second")]
    await_round(3, others)
    new = job.start("new", *options)
    everyone = [*others, new]
    await_round(1, everyone)
    (joined,) = new.lines("joined")
    assert joined["round"] >= 3
    await_round(new.round + 4, everyone)
    check_equal_bits(everyone)
    # The others committed every round, while it joined as well.
    for each in others:
        numbers = [line["round"] for line in each.lines("commit")]
        assert numbers == list(range(1, len(numbers) + 1))
    common = set(new.digests) & set(others[0].digests) & set(others[1].digests)
    assert len(common) >= 4


def test_a_killed_replica_may_come_back_under_another_name(job: Job) -> None:
    options = ("--rounds", FOREVER, "--step-s", 0.01)
    lives = [job.start(f"life-{number}", "--expect", 2, *options) for number in range(2)]
    for number in range(2, 4):
        until(lambda: lives[-1].round > lives[0].round - 3 > 0, lives)
        lives[-1].kill()
        lives.append(job.start(f"life-{number}", *options))
        await_round(1, lives)
    check_equal_bits(lives)


def test_a_frozen_replica_is_left_out_and_comes_back(job: Job) -> None:
    options = ("--expect", 3, "--rounds", FOREVER, "--step-s", 0.02)
    names = ("first", "second", "frozen")
    *others, frozen = (job.start(name, *options, SPARSEWIRE_PEER_TIMEOUT="1") for name in names)
    everyone = [*others, frozen]
    await_round(3, everyone)
    for _ in range(2):
        frozen.kill(signal.SIGSTOP)
        await_round(others[0].round + 4, others)
        frozen.kill(signal.SIGCONT)
        await_round(others[0].round + 1, everyone)
    check_equal_bits(everyone)


def test_without_a_store_replicas_say_so_and_end(job: Job) -> None:
    options = ("--expect", 2, "--rounds", FOREVER, "--step-s", 0.01)
    replicas = [job.start(name, *options) for name in ("first", "second")]
    await_round(2, replicas)
    job.meeting.kill()
    job.meeting.join()
    await_round(replicas[0].round + 3, replicas)
    replicas[1].kill()
    replicas[0].end()
    (failed,) = replicas[0].lines("failed")
    assert failed["error"].startswith("Error: the store in which replicas meet is gone")
    assert "must outlive" in failed["error"]


def leaving(
    rank: int, membership: Any, signals: Signals, fragments: int, compressor: str
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Three steps of both; then replica 1 leaves, and replica 0 takes part in that."""
    walker = Walker(
        rank,
        membership,
        deadline=None,
        every=fragments,
        fragments=fragments,
        compressor=compressor,
    )
    for _ in range(3):
        walker.step()
    if rank == 1:
        walker.outer.leave()
        return walker.theta(), owed_by(walker), walker.outer.stats()
    with walker.outer as outer:
        for _ in range(fragments):
            walker.step()
        theta, owed = walker.theta(), owed_by(walker)
        walker.steps_until(3 + 3 * fragments)
        return theta, owed, outer.stats()


def owed_by(walker: Walker) -> Tensor:
    owed = walker.outer.state_dict()["residuals"] or {"0": torch.zeros(64), "1": torch.zeros(3)}
    return torch.cat([owed["0"], owed["1"]])


@pytest.mark.parametrize("compressor", ["dense", "top-k:2"])
@pytest.mark.parametrize("fragments", [1, 2])
def test_who_leaves_in_order_owes_nothing(fragments: int, compressor: str) -> None:
    run = partial(leaving, signals=Signals(2), fragments=fragments, compressor=compressor)
    (theta, owed, stats), (_, nothing, _) = together(2, run)
    assert not nothing.any()
    # The second fragment's last round was a step earlier.
    own = torch.cat([torch.full((64,), 3.0 + fragments), torch.full((3,), 4.0)])
    assert (2 * (BEGIN - theta) + owed == own + 3 * 2.0).all()
    assert stats["lost"] == []
    assert stats["owed_lost"] == 0
    assert stats["members"] == 1


def vanishing(rank: int, membership: Any) -> Any:
    """Replica 1 closes after three steps, without a word."""
    walker = Walker(rank, membership, deadline=None, compressor="top-k:2")
    owed = [torch.zeros(67)]
    with walker.outer as outer:
        for _ in range(3 if rank == 1 else 5):
            walker.step()
            owed.append(owed_by(walker))
        return owed, outer.stats()


def test_what_a_lost_replica_owed_is_counted() -> None:
    (_, stats), (owed, _) = together(2, vanishing)
    assert stats["lost"] == [names_of(2)[1]]
    # As it told when its last round began.
    assert stats["owed_lost"] == pytest.approx(float(owed[2].norm()), rel=1e-5)
    assert stats["owed_lost"] > 0


class LostVotes:
    """Some replicas lose their connections in the third round, when all have voted for it."""

    def __init__(self, ranks: set[int]) -> None:
        self._left = set(ranks)
        self._count = dict.fromkeys(range(2), 0)

    def __call__(self, communicator: Any, is_ready: bool, timeout: float) -> list[bool]:
        votes = agreed(communicator, is_ready, timeout)
        rank = communicator.rank
        self._count[rank] += 1
        if self._count[rank] >= 3 and rank in self._left:
            self._left.remove(rank)
            # Time for the other to commit, if it is not to lose them as well.
            time.sleep(0.1)
            raise Error("the connection broke after the votes")
        return votes


def voting(rank: int, membership: Any, signals: Signals) -> tuple[Tensor, Tensor, bytes, int]:
    walker = Walker(rank, membership, deadline=None, compressor="top-k:20")
    with walker.outer as outer:
        for _ in range(5):
            walker.step()
        signals.settle(walker)
        return walker.theta(), owed_by(walker), shared(outer), outer.stats()["aborted"]


@pytest.mark.parametrize("ranks", [{0}, {1}, {0, 1}], ids=str)
def test_a_round_counts_for_all_or_for_none_whoever_loses_the_votes(
    ranks: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "agreed", LostVotes(ranks))
    found = together(2, partial(voting, signals=Signals(2)))
    assert found[0][2] == found[1][2]
    owed = sum(each for _, each, _, _ in found)
    assert (2 * (BEGIN - found[0][0]) + owed == 5 * (1 + 2)).all()
    # One that has committed takes the other along; if nobody has, the round is had again.
    aborted = [times for *_, times in found]
    assert aborted in ([[1, 1]] if len(ranks) == 2 else [[0, 0], [1, 1]])
