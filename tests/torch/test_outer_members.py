"""Members of a job that come and go while it trains: killed in any phase, frozen, new, and leaving
in order. What is left is equal bit by bit, and nothing hangs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from outer_processes import FOREVER, Job, Replica, await_round, until
from outer_threads import names_of, together
from test_outer_late import BEGIN, Signals, Walker
from torch import Tensor

from sparsewire.torch.outer.phases import Phase

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
) -> tuple[Tensor, Tensor, dict[str, Any]] | None:
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
        return None
    with walker.outer as outer:
        for _ in range(fragments):
            walker.step()
        saved = outer.state_dict()["residuals"] or {"0": torch.zeros(64), "1": torch.zeros(3)}
        theta = walker.theta()
        walker.steps_until(3 + 3 * fragments)
        return theta, torch.cat([saved["0"], saved["1"]]), outer.stats()


@pytest.mark.parametrize("compressor", ["dense", "top-k:2"])
@pytest.mark.parametrize("fragments", [1, 2])
def test_who_leaves_in_order_owes_nothing(fragments: int, compressor: str) -> None:
    run = partial(leaving, signals=Signals(2), fragments=fragments, compressor=compressor)
    (theta, owed, stats), _ = together(2, run)
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
            owed.append(torch.cat([*outer.state_dict()["residuals"].values()]))
        return owed, outer.stats()


def test_what_a_lost_replica_owed_is_counted() -> None:
    (_, stats), (owed, _) = together(2, vanishing)
    assert stats["lost"] == [names_of(2)[1]]
    # As it told when its last round began.
    assert stats["owed_lost"] == pytest.approx(float(owed[2].norm()), rel=1e-5)
    assert stats["owed_lost"] > 0
