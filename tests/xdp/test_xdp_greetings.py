"""The programs answer a hello that is rightly so, by the way of results, and leave all others to
the process."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

import pytest
from slot_wire import HELLO, INT32, WELCOME, Slotted, tag, way_key
from xdp_frames import End, frame
from xdp_kernel import (
    AGGREGATOR,
    PASS,
    RACK,
    REDIRECT,
    ROOT,
    Kernel,
    kernel,
    needs_kernel,
    worker_end,
)
from xdp_play import JOB, KEY
from xdp_rack import rack

import sparsewire

pytestmark = [*needs_kernel, pytest.mark.timeout(120)]

FULL, SHORT = 1072, 112
GREETS = Slotted(JOB, 0, 0, 7, kind=HELLO, columns=0, present=0, block=256, dtype=0, key=KEY)
PARTY = tuple(range(1, 7))


def hello(size: int = FULL, **changes: object) -> bytes:
    """Of so many bytes, with numbers at its beginning as a real one has."""
    values = PARTY + (0,) * ((size - 48) // 4 - len(PARTY))
    return GREETS.but(**{"values": values, **changes}).encoded()


def check_welcome(answer: bytes, asked: bytes) -> None:
    assert len(answer) == FULL
    assert (answer[1], answer[20]) == (WELCOME, INT32)
    assert answer[32:40] == tag(way_key(KEY, WELCOME, False), answer[:32], answer[40:]).to_bytes(
        8, "little"
    )
    assert answer[2:20] == asked[2:20]
    assert answer[21:32] == asked[21:32]
    assert answer[40 : len(asked)] == asked[40:]
    assert not any(answer[len(asked) :])


@pytest.fixture(scope="module")
def programs() -> Iterator[Kernel]:
    with kernel() as running:
        yield running


@pytest.fixture
def job(programs: Kernel) -> Iterator[Kernel]:
    programs.add_job(JOB, 2, KEY)
    yield programs
    programs.plane.remove_job(JOB)


@pytest.mark.parametrize("size", [FULL, SHORT])
def test_a_hello_is_welcomed_with_a_datagram_of_full_size(job: Kernel, size: int) -> None:
    asked = hello(size)
    verdict, data = job.send(0, asked)
    assert verdict == REDIRECT
    assert job.addressee(JOB, data)[2] == 0
    check_welcome(data[42:], asked)


@pytest.mark.parametrize(
    "changes",
    [
        {"block": 0},
        {"block": 8},
        {"block": 272},
        {"key": bytes(32)},
        {"epoch": 2},
        {"worker": 1},
        {"worker": 2},
        {"job": JOB + 1},
        {"values": tuple(range(18))},
    ],
    ids=lambda changes: ",".join(changes),
)
def test_all_others_are_left_to_the_process(job: Kernel, changes: dict[str, object]) -> None:
    came = frame(worker_end(0), AGGREGATOR, hello(**changes))
    assert job.run(came) == (PASS, came)
    assert not any(job.plane.stats(JOB).values())


def test_an_old_hello_is_no_news(job: Kernel) -> None:
    assert job.send(0, hello(round=9))[0] == REDIRECT
    for number in (9, 8, 0):
        assert job.send(0, hello(round=number))[0] == PASS
    assert job.send(0, hello(round=10))[0] == REDIRECT


def test_a_worker_moves_with_a_newer_hello_alone(job: Kernel) -> None:
    moved = dataclasses.replace(worker_end(0), port=6000)
    assert job.send(0, hello(round=9))[0] == REDIRECT
    for number in (1, 8, 9):
        with pytest.raises(sparsewire.Error, match="old greeting"):
            job.plane.bind_worker(JOB, 0, moved.host, moved.port, number)
    job.plane.bind_worker(JOB, 0, moved.host, moved.port, 10)
    assert job.run(frame(moved, AGGREGATOR, hello(round=11)))[0] == REDIRECT
    assert job.send(0, hello(round=12))[0] == PASS


ELSEWHERE = dataclasses.replace(worker_end(0), port=6000)


def bind(job: Kernel, end: End, number: int) -> None:
    job.plane.bind_worker(JOB, 0, end.host, end.port, number)


def test_a_greeting_that_only_the_process_heard_moves_nothing_later(job: Kernel) -> None:
    bind(job, worker_end(0), 9)
    for number in (2, 9):
        with pytest.raises(sparsewire.Error, match="old greeting"):
            bind(job, ELSEWHERE, number)
    bind(job, ELSEWHERE, 10)


def test_a_copy_that_overtakes_moves_a_worker_until_the_original_comes(job: Kernel) -> None:
    bind(job, ELSEWHERE, 9)
    bind(job, worker_end(0), 9)
    with pytest.raises(sparsewire.Error, match="old greeting"):
        bind(job, ELSEWHERE, 9)
    assert job.send(0, hello(round=10))[0] == REDIRECT


def test_a_number_moves_a_worker_back_from_where_it_moved_it_alone(job: Kernel) -> None:
    bind(job, ELSEWHERE, 9)
    bind(job, ELSEWHERE, 10)
    for number in (9, 10):
        with pytest.raises(sparsewire.Error, match="old greeting"):
            bind(job, worker_end(0), number)
    bind(job, worker_end(0), 11)
    assert job.send(0, hello(round=12))[0] == REDIRECT
    with pytest.raises(sparsewire.Error, match="old greeting"):
        bind(job, ELSEWHERE, 11)


@pytest.mark.parametrize("change", [{"host": "10.0.0.9"}, {"port": 6000}])
def test_nobody_is_welcomed_who_is_not_bound(job: Kernel, change: dict[str, object]) -> None:
    came = frame(dataclasses.replace(worker_end(0), **change), AGGREGATOR, hello())
    assert job.run(came) == (PASS, came)


def test_a_copied_hello_draws_no_answers_away(job: Kernel) -> None:
    elsewhere = dataclasses.replace(worker_end(0), mac=b"\x02evil!")
    job.send(0, hello())
    job.run(frame(elsewhere, AGGREGATOR, hello()))
    assert job.path(JOB, 0) == AGGREGATOR.mac + worker_end(0).mac


def test_a_new_hello_shows_the_way_while_all_wait(job: Kernel) -> None:
    """As where the next hop has got another card: no contribution comes that is new."""
    job.send(0, hello(round=8))
    job.send(0, Slotted(JOB, 0, 0, 0, next=0, key=KEY).encoded())
    moved = dataclasses.replace(worker_end(0), mac=b"\x02gatew")
    assert job.run(frame(moved, AGGREGATOR, hello(round=12)))[0] == REDIRECT
    assert job.path(JOB, 0) == AGGREGATOR.mac + moved.mac


def test_a_new_welcome_shows_the_way_to_the_root_and_a_copy_does_not(programs: Kernel) -> None:
    programs.add_job(JOB, 2, KEY, root=ROOT)
    try:
        ends = [dataclasses.replace(ROOT, mac=bytes([2, 0, 0, 0, 3, last])) for last in range(3)]
        welcomes = GREETS.but(kind=WELCOME, worker=RACK, values=(0,) * 256, above=True)
        for number, end, path in ((7, 0, 0), (8, 1, 1), (7, 2, 1), (8, 2, 1)):
            programs.run(frame(ends[end], AGGREGATOR, welcomes.but(round=number).encoded()))
            assert programs.path_up(JOB) == AGGREGATOR.mac + ends[path].mac
    finally:
        programs.plane.remove_job(JOB)


def test_a_rack_welcomes_once_its_root_has(programs: Kernel) -> None:
    programs.add_job(JOB, 2, KEY, root=ROOT)
    try:
        welcomes = GREETS.but(kind=WELCOME, worker=RACK, values=(0,) * 256, above=True)
        for answered, verdict in (
            (welcomes.but(worker=RACK - 1), PASS),
            (welcomes.but(values=(0,) * 240), PASS),
            (welcomes.but(round=8), REDIRECT),
        ):
            assert programs.send_down(answered.encoded())[0] == PASS
            assert programs.send(0, hello())[0] == verdict
        assert programs.plane.way_up(JOB) == FULL
        programs.plane.forget_way_up(JOB)
        assert programs.send(0, hello(round=8))[0] == PASS
        programs.send_down(welcomes.but(round=8).encoded())
        assert programs.send(0, hello(round=9))[0] == PASS
        programs.send_down(welcomes.but(round=9).encoded())
        assert programs.send(0, hello(round=10))[0] == REDIRECT
    finally:
        programs.plane.remove_job(JOB)


@pytest.mark.parametrize("is_v6", [False, True])
def test_short_and_full_hellos_take_both_ways_of_results(is_v6: bool) -> None:
    """A veth's frame has no room behind a short one, so its answer goes by tc."""
    with rack(2, is_v6=is_v6) as hosts:
        hosts.add_job(JOB, KEY)
        for number, size in enumerate((FULL, SHORT), 2):
            asked = hello(size, round=number)
            hosts.workers[0].send(asked)
            check_welcome(received(hosts.workers[0]), asked)


def received(worker: object, seconds: float = 10.0) -> bytes:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            return worker.recv(2048)
        except BlockingIOError:
            time.sleep(0.01)
    raise TimeoutError("no welcome")
