"""A rack's aggregator believes its root alone: nothing else takes its place, or draws its sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from slot_wire import CONTRIBUTION, RECALL, RESULT, WELCOME, Slotted, decoded
from xdp_frames import frame
from xdp_kernel import (
    AGGREGATOR,
    DROP,
    PASS,
    RACK,
    RACKS,
    REDIRECT,
    ROOT,
    Kernel,
    kernel,
    needs_kernel,
)
from xdp_play import JOB, KEY, NO_COUNTS

from sparsewire.errors import Error

pytestmark = [*needs_kernel, pytest.mark.timeout(120)]

FIRST = Slotted(JOB, 0, 3, 0, next=4, exponent=9, values=tuple(range(16)), key=KEY)
TOLD = FIRST.but(kind=RESULT, worker=RACK, values=tuple(range(100, 116)), above=True)
# Its bytes are those of a welcome with a tag that the programs can read.
GREETED = {"kind": WELCOME, "worker": RACK, "round": 1, "columns": 0, "present": 0}
WELCOMING = TOLD.but(values=tuple(range(144)), **GREETED)


@pytest.fixture(scope="module")
def programs() -> Iterator[Kernel]:
    with kernel() as running:
        yield running


@pytest.fixture
def job(programs: Kernel) -> Iterator[Kernel]:
    programs.add_job(JOB, 2, KEY, root=ROOT)
    yield programs
    programs.plane.remove_job(JOB)


def contribute(job: Kernel) -> Slotted:
    """Both workers do; what goes to the root."""
    assert job.send(0, FIRST.encoded())[0] == DROP
    verdict, data = job.send(1, FIRST.but(worker=1).encoded())
    assert verdict == REDIRECT
    assert job.addressee(JOB, data) == (3, 0, 254)
    return decoded(data[42:], KEY, above=True)


def test_sums_go_up_and_results_down(job: Kernel) -> None:
    sums = tuple(range(0, 32, 2))
    assert contribute(job) == FIRST.but(kind=CONTRIBUTION, worker=RACK, values=sums, above=True)
    verdict, data = job.send_down(TOLD.encoded())
    assert verdict == REDIRECT
    assert job.addressee(JOB, data) == (3, 0, 255)
    assert decoded(data[42:], KEY) == TOLD.but(worker=1, above=False)
    counts = {"contributions": 2, "passed": 1, "results": 1}
    assert job.plane.stats(JOB) == {**NO_COUNTS, **counts}


@pytest.mark.parametrize(
    "changes",
    [
        {"key": bytes(32)},
        {"above": False},
        {"epoch": 2},
        {"worker": RACKS},
        {"slot": 128},
        {"dtype": 0},
        {"columns": 2},
        {"block": 32, "values": tuple(range(32))},
    ],
    ids=lambda changes: ",".join(changes),
)
@pytest.mark.parametrize("kind", [RESULT, RECALL])
def test_forged_words_of_the_root_are_refused(
    job: Kernel, kind: int, changes: dict[str, object]
) -> None:
    contribute(job)
    before = bytes(job.slot(JOB, 3))
    assert job.send_down(TOLD.but(kind=kind, **changes).encoded())[0] == DROP
    assert bytes(job.slot(JOB, 3)) == before
    assert job.plane.stats(JOB)["rejected"] == 1


@pytest.mark.parametrize("change", [{"host": "10.0.0.1"}, {"port": 4001}])
def test_the_root_speaks_from_its_address(job: Kernel, change: dict[str, object]) -> None:
    contribute(job)
    elsewhere = dataclasses.replace(ROOT, **change)
    assert job.run(frame(elsewhere, AGGREGATOR, TOLD.encoded()))[0] == DROP
    assert job.plane.stats(JOB)["rejected"] == 1
    assert job.send_down(TOLD.encoded())[0] == REDIRECT


def test_flipped_bits_of_a_result_are_refused(job: Kernel) -> None:
    contribute(job)
    whole = TOLD.encoded()
    strays = 0
    for byte in range(2, len(whole)):
        data = bytearray(whole)
        data[byte] ^= 1 << byte % 8
        verdict, _ = job.send_down(bytes(data))
        strays += verdict == PASS  # Of a job that is not here: the process drops it.
        assert verdict in (DROP, PASS)
    assert strays == 8
    assert job.plane.stats(JOB)["rejected"] == len(whole) - 2 - strays
    assert job.plane.stats(JOB)["results"] == 0


def test_results_of_other_rounds_are_stale(job: Kernel) -> None:
    contribute(job)
    for number in (1, 2, 1 << 32, (1 << 64) - 1):
        assert job.send_down(TOLD.but(round=number).encoded())[0] == DROP
    assert job.send_down(TOLD.encoded())[0] == REDIRECT
    assert job.send_down(TOLD.encoded())[0] == DROP
    assert job.plane.stats(JOB)["stale"] == 5


def test_the_way_up_is_learned_from_a_welcome_that_is_sealed(job: Kernel) -> None:
    for welcome in (WELCOMING.but(key=bytes(32)), WELCOMING.but(epoch=2)):
        assert job.send_down(welcome.encoded())[0] == PASS
    assert job.plane.way_up(JOB) == 0
    came = frame(ROOT, AGGREGATOR, WELCOMING.encoded())
    assert job.run(came) == (PASS, came)
    assert job.plane.way_up(JOB) == len(WELCOMING.encoded())
    assert job.path_up(JOB) == AGGREGATOR.mac + ROOT.mac


def test_who_repeats_what_the_root_said_draws_no_sums(job: Kernel) -> None:
    job.send_down(WELCOMING.encoded())
    contribute(job)
    job.send_down(TOLD.encoded())
    elsewhere = dataclasses.replace(ROOT, mac=b"\x02evil!")
    for again in (WELCOMING, TOLD, TOLD.but(kind=RECALL)):
        job.run(frame(elsewhere, AGGREGATOR, again.encoded()))
    assert job.path_up(JOB) == AGGREGATOR.mac + ROOT.mac


def test_workers_come_as_the_root_does(job: Kernel) -> None:
    with pytest.raises(Error, match="all by IPv6"):
        job.plane.bind_worker(JOB, 1, "fd00::2", 5001)
