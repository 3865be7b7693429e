"""The programs do what a plain model does, whatever comes in whichever order."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slot_wire import HELLO, NO_BLOCK, RESULT, Slotted, decoded
from xdp_frames import ETHERNET, checksum, frame, headers
from xdp_kernel import (
    AGGREGATOR,
    AGGREGATOR_V6,
    DROP,
    PASS,
    REDIRECT,
    Kernel,
    kernel,
    needs_kernel,
    worker_end,
)
from xdp_play import JOB, KEY, NO_COUNTS, play

from sparsewire.errors import Error

pytestmark = [*needs_kernel, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def programs() -> Iterator[Kernel]:
    with kernel() as running:
        yield running


FLOWS = st.sampled_from([1, 2, 3, 8])


@given(seed=st.integers(0, 1 << 64), workers=st.sampled_from([1, 2, 3, 5, 32]), flows=FLOWS)
def test_same_as_the_model(programs: Kernel, seed: int, workers: int, flows: int) -> None:
    play(programs, seed, workers, flows=flows)


@given(seed=st.integers(0, 1 << 64), workers=st.sampled_from([1, 2, 3, 32]), flows=FLOWS)
def test_same_as_the_model_of_a_rack(programs: Kernel, seed: int, workers: int, flows: int) -> None:
    play(programs, seed, workers, in_rack=True, flows=flows)


@pytest.fixture
def job(programs: Kernel) -> Iterator[Kernel]:
    programs.add_job(JOB, 2, KEY)
    yield programs
    programs.plane.remove_job(JOB)


FIRST = Slotted(JOB, 0, 3, 0, next=4, exponent=9, values=tuple(range(16)), key=KEY)


def test_rounds_go_on_behind_32_bits_and_never_come_back(job: Kernel) -> None:
    job.set_rounds(JOB, 3, (1 << 32) - 2)
    for number in range((1 << 32) - 2, (1 << 32) + 2):
        recorded = FIRST.but(round=number % (1 << 32)).encoded()
        if number >= 1 << 32:
            assert job.send(0, recorded)[0] == DROP
        assert job.send(0, FIRST.but(round=number).encoded())[0] == DROP
        verdict, data = job.send(1, FIRST.but(round=number, worker=1).encoded())
        assert verdict == REDIRECT
        assert decoded(data[42:], KEY).values == tuple(range(0, 32, 2))
    assert job.plane.stats(JOB) == {**NO_COUNTS, "contributions": 8, "results": 4, "stale": 2}


INFINITY, NEGATIVE, NAN = 1, 1 << 16, (1 << 16) + 1
MARKS = (INFINITY, NAN, NEGATIVE, 0) * 4, (INFINITY, 0, INFINITY, 0) * 4
LEVELS = tuple(range(-8, 8)), (1 << 28,) * 16


def test_a_block_is_asked_for_again_behind_its_marks(job: Kernel) -> None:
    """With what two workers announce, and send, round by round: nothing, marks, levels."""
    rounds = [(4, (255, 120), ((), ())), (4, (130, 131), MARKS), (NO_BLOCK, (0, 0), LEVELS)]
    for number, (block, exponents, values) in enumerate(rounds):
        for worker in range(2):
            sent = FIRST.but(round=number, worker=worker, next=block, values=values[worker])
            verdict, data = job.send(worker, sent.but(exponent=exponents[worker]).encoded())
        assert verdict == REDIRECT
        result = decoded(data[42:], KEY)
        assert (result.next, result.exponent) == (block, max(exponents))
        assert result.values == tuple(map(sum, zip(*values, strict=True)))


@pytest.mark.parametrize(
    "changes",
    [
        {"worker": 2},
        {"worker": 33},
        {"slot": 128},
        {"columns": 2},
        {"columns": 0},
        {"present": 2},
        {"present": 0},
        {"dtype": 0},
        {"op": 1},
        {"epoch": 2},
        {"block": 0},
        {"block": 8, "values": tuple(range(8))},
        {"block": 272, "values": tuple(range(272))},
        {"block": 32},
        {"values": ()  , "present": 1},
        {"key": bytes(32)},
    ],
    ids=lambda changes: ",".join(changes),
)  # fmt: skip
def test_what_cannot_be_is_rejected(job: Kernel, changes: dict[str, object]) -> None:
    assert job.send(0, FIRST.but(**changes).encoded())[0] == DROP
    assert job.plane.stats(JOB) == {**NO_COUNTS, "rejected": 1}


def test_another_block_than_the_round_has_is_rejected(job: Kernel) -> None:
    job.send(0, FIRST.encoded())
    other = FIRST.but(worker=1, block=32, values=tuple(range(32)))
    assert job.send(1, other.encoded())[0] == DROP
    assert job.plane.stats(JOB) == {**NO_COUNTS, "contributions": 1, "rejected": 1}


@pytest.mark.parametrize("number", [(1 << 64) - 2, (1 << 64) - 1, 1 << 32, 1, 2])
def test_nothing_is_before_the_first_round(job: Kernel, number: int) -> None:
    assert job.send(0, FIRST.but(round=number).encoded())[0] == DROP
    assert job.plane.stats(JOB) == {**NO_COUNTS, "stale": 1}


def test_other_job_is_left_to_the_system(job: Kernel) -> None:
    before = job.plane.strays()
    came = frame(worker_end(0), AGGREGATOR, FIRST.but(job=JOB + 1).encoded())
    assert job.run(came) == (PASS, came)
    assert job.plane.strays() == before + 1
    assert job.plane.stats(JOB) == NO_COUNTS


@pytest.mark.parametrize("change", [{"host": "10.0.0.2"}, {"port": 5001}])
def test_other_address_is_rejected(job: Kernel, change: dict[str, object]) -> None:
    sender = dataclasses.replace(worker_end(0), **change)
    assert job.run(frame(sender, AGGREGATOR, FIRST.encoded()))[0] == DROP
    assert job.plane.stats(JOB) == {**NO_COUNTS, "rejected": 1}


@pytest.mark.parametrize("is_v6", [False, True])
def test_what_is_for_another_address_is_left_to_the_system(is_v6: bool) -> None:
    own = AGGREGATOR_V6 if is_v6 else AGGREGATOR
    others = ["fd00::ff", "fd00:1::fe"] if is_v6 else ["10.0.0.253", "10.1.0.254"]
    with kernel(own.host) as programs:
        programs.add_job(JOB, 1, KEY, is_v6=is_v6)
        sender = worker_end(0, is_v6=is_v6)
        for host in others:
            elsewhere = dataclasses.replace(own, host=host)
            # A whole one of the job, and one that this aggregator would reject.
            for sent in (FIRST, FIRST.but(key=bytes(32))):
                came = frame(sender, elsewhere, sent.encoded())
                assert programs.run(came) == (PASS, came)
        assert programs.plane.stats(JOB) == NO_COUNTS
        assert programs.run(frame(sender, own, FIRST.encoded()))[0] == REDIRECT


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_any_address_is_meant(host: str) -> None:
    with kernel(host) as programs:
        programs.add_job(JOB, 1, KEY)
        assert programs.send(0, FIRST.encoded())[0] == REDIRECT


def test_who_repeats_an_old_one_draws_no_answers(job: Kernel) -> None:
    job.send(0, FIRST.encoded())
    learned = job.path(JOB, 0)
    assert learned == AGGREGATOR.mac + worker_end(0).mac
    elsewhere = dataclasses.replace(worker_end(0), mac=b"\x02evil!")
    for again in (FIRST, FIRST.but(round=7), FIRST.but(epoch=2)):
        job.run(frame(elsewhere, AGGREGATOR, again.encoded()))
    assert job.path(JOB, 0) == learned
    job.send(1, FIRST.but(worker=1).encoded())
    job.run(frame(elsewhere, AGGREGATOR, FIRST.but(round=1).encoded()))
    assert job.path(JOB, 0) == AGGREGATOR.mac + elsewhere.mac


@given(seed=st.integers(0, 1 << 64))
def test_flipped_bits_are_rejected(programs: Kernel, seed: int) -> None:
    draw = random.Random(seed)
    programs.add_job(JOB, 2, KEY)
    strays = programs.plane.strays()
    try:
        for _ in range(50):
            data = bytearray(FIRST.encoded())
            byte = draw.randrange(2, len(data))
            data[byte] ^= 1 << draw.randrange(8)
            # Of no known job, it is left to the system.
            verdict = PASS if 8 <= byte < 16 else DROP
            assert programs.send(0, bytes(data))[0] == verdict, byte
        rejected = programs.plane.stats(JOB)["rejected"] + programs.plane.strays() - strays
        assert rejected == 50
        assert programs.plane.stats(JOB)["contributions"] == 0
    finally:
        programs.plane.remove_job(JOB)


def test_cut_or_longer_datagrams_are_rejected(job: Kernel) -> None:
    whole = FIRST.encoded()
    for payload in (whole[:-4], whole[:48], whole + bytes(4), whole + bytes(64)):
        assert job.send(0, payload)[0] == DROP
    lies = bytearray(frame(worker_end(0), AGGREGATOR, whole))
    assert job.run(bytes(lies[:-8]))[0] == DROP
    assert job.plane.stats(JOB) == {**NO_COUNTS, "rejected": 5}


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize("is_v6", [False, True])
def test_every_kind_of_frame(programs: Kernel, is_v6: bool, tagged: bool) -> None:
    to = AGGREGATOR_V6 if is_v6 else AGGREGATOR
    programs.add_job(JOB, 2, KEY, is_v6=is_v6)
    try:
        for worker in range(2):
            sent = FIRST.but(worker=worker, values=FIRST.values if worker else ())
            came = frame(worker_end(worker, is_v6=is_v6), to, sent.encoded(), tagged=tagged)
            verdict, data = programs.run(came)
        assert verdict == REDIRECT
        ethernet = slice(0, ETHERNET + 4 * tagged)
        assert data[ethernet] == came[ethernet]
        result = decoded(data[headers(is_v6, tagged) :], KEY)
        assert (result.worker, result.values) == (1, FIRST.values)
    finally:
        programs.plane.remove_job(JOB)


def test_other_address_of_ipv6_is_rejected(programs: Kernel) -> None:
    programs.add_job(JOB, 2, KEY, is_v6=True)
    try:
        for host in ("fd00::2", "fd01::1", "fd00:1::1", "fd00::1:0:0:1"):
            sender = dataclasses.replace(worker_end(0), host=host)
            assert programs.run(frame(sender, AGGREGATOR_V6, FIRST.encoded()))[0] == DROP
        assert programs.plane.stats(JOB) == {**NO_COUNTS, "rejected": 4}
    finally:
        programs.plane.remove_job(JOB)


def test_who_copies_a_greeting_takes_no_place(job: Kernel) -> None:
    own = worker_end(0)
    job.plane.bind_worker(JOB, 0, own.host, own.port)
    for host, port in (("10.0.0.99", own.port), (own.host, 4000)):
        with pytest.raises(Error, match="from elsewhere"):
            job.plane.bind_worker(JOB, 0, host, port)
    job.send(0, FIRST.encoded())
    assert job.plane.stats(JOB)["contributions"] == 1


def test_workers_come_by_one_kind_of_address(programs: Kernel) -> None:
    programs.add_job(JOB, 2, KEY)
    try:
        with pytest.raises(Error, match="all by IPv6"):
            programs.plane.bind_worker(JOB, 1, "fd00::2", 5001)
        programs.plane.bind_worker(JOB, 1, "::ffff:10.0.0.2", 5001)
        with pytest.raises(Error, match="no address"):
            programs.plane.bind_worker(JOB, 1, "localhost", 5001)
    finally:
        programs.plane.remove_job(JOB)


def test_padding_of_a_frame_is_no_part_of_it(job: Kernel) -> None:
    data = frame(worker_end(0), AGGREGATOR, FIRST.encoded()) + bytes(12)
    assert job.run(data)[0] == DROP
    assert job.plane.stats(JOB) == {**NO_COUNTS, "contributions": 1}
    other = FIRST.but(worker=1)
    verdict, data = job.run(frame(worker_end(1), AGGREGATOR, other.encoded()) + bytes(9))
    assert verdict == REDIRECT
    assert len(data) == 42 + len(FIRST.encoded())


@pytest.mark.parametrize("what", ["hello", "result", "other port", "other version", "short", "tcp",
                                  "fragment", "options"])  # fmt: skip
def test_everything_else_passes(job: Kernel, what: str) -> None:
    data = bytearray(frame(worker_end(0), AGGREGATOR, FIRST.encoded()))
    if what == "hello":
        data[43] = HELLO
    elif what == "result":
        data[43] = RESULT
    elif what == "other port":
        data[36:38] = (9998).to_bytes(2, "big")
    elif what == "other version":
        data[42] = 1
    elif what == "short":
        del data[80:]
    elif what == "tcp":
        data[23] = 6
    elif what == "fragment":
        data[20] |= 0x20
    else:
        data[14] = 0x46
    assert job.run(bytes(data)) == (PASS, bytes(data))
    assert job.plane.stats(JOB) == NO_COUNTS


def test_jobs_do_not_know_each_other(job: Kernel) -> None:
    other = JOB + 7
    job.add_job(other, 2, bytes(32))
    try:
        assert job.send(0, FIRST.encoded())[0] == DROP
        theirs = FIRST.but(job=other, key=bytes(32), values=())
        assert job.send(0, theirs.encoded())[0] == DROP
        verdict, data = job.send(1, theirs.but(worker=1).encoded())
        assert verdict == REDIRECT
        assert decoded(data[42:], bytes(32)).values == ()
        assert job.plane.stats(JOB)["results"] == 0
    finally:
        job.plane.remove_job(other)


def test_a_new_job_begins_afresh_in_the_place_of_another(programs: Kernel) -> None:
    for epoch in (1, 2):
        programs.add_job(JOB, 2, KEY, epoch=epoch)
        ours = FIRST.but(epoch=epoch)
        assert programs.send(0, ours.encoded())[0] == DROP
        assert programs.send(1, ours.but(worker=1).encoded())[0] == REDIRECT
        assert programs.plane.stats(JOB) == {**NO_COUNTS, "contributions": 2, "results": 1}
        programs.plane.remove_job(JOB)


def test_jobs_and_workers_have_limits(programs: Kernel) -> None:
    with pytest.raises(Error, match="1 to 32 workers"):
        programs.add_job(JOB, 33, KEY)
    for number in range(8):
        programs.add_job(number, 1, KEY)
    with pytest.raises(Error, match="8 jobs"):
        programs.add_job(8, 1, KEY)
    with pytest.raises(Error, match="with worker 1"):
        programs.plane.bind_worker(0, 1, "10.0.0.1", 1)
    for number in range(8):
        programs.plane.remove_job(number)


def test_checksum_of_frames_is_that_of_the_standard() -> None:
    # The example of RFC 1071.
    assert checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0x220D
