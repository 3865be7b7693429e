"""The pool of pinned memory: what is used again, what is waited for, and how much there is."""

from __future__ import annotations

import threading

import pytest
import torch

from sparsewire.device import pinned
from sparsewire.device.pinned import Loan, PinnedPool

KIB = 1024
SMALLEST = 64 * KIB


class Moment:
    """An event of a device that counts who waited for it."""

    def __init__(self) -> None:
        self.waited = 0

    def synchronize(self) -> None:
        self.waited += 1

    def query(self) -> bool:
        return self.waited > 0


class Group:
    """Who borrows; its stream is at `moment`."""

    def __init__(self, moment: Moment | None = None) -> None:
        self.moment = moment

    def end(self) -> Moment | None:
        return self.moment


def pool_of(limit: int) -> tuple[PinnedPool, list[int]]:
    made: list[int] = []

    def allocate(nbytes: int) -> torch.Tensor:
        made.append(nbytes)
        return torch.empty(nbytes, dtype=torch.uint8)

    return PinnedPool(allocate, limit), made


def loan_of(pool: PinnedPool, *sizes: int, group: Group | None = None) -> Loan:
    """A loan of so many bytes in each buffer, to a borrower of its own unless one is given."""
    loan = Loan(pool, group or Group())
    for nbytes in sizes:
        loan.take(nbytes)
    return loan


def test_memory_is_used_again_once_the_device_is_done_with_it() -> None:
    pool, made = pool_of(4 * SMALLEST)
    loan, moment = Loan(pool, Group()), Moment()
    first = loan.take(1000)
    assert first.numel() >= 1000
    loan.end(moment)
    assert moment.waited == 0
    again = loan.take(SMALLEST)
    assert again.data_ptr() == first.data_ptr()
    assert moment.waited == 1
    assert made == [SMALLEST]
    assert pool.lent_bytes == SMALLEST
    loan.end()
    loan.end()
    assert (pool.lent_bytes, pool.kept_bytes) == (0, SMALLEST)


def test_what_is_lent_and_kept_stays_below_the_limit() -> None:
    pool, _ = pool_of(4 * SMALLEST)
    moment = Moment()
    loan_of(pool, *[SMALLEST] * 4).end(moment)
    assert pool.kept_bytes == 4 * SMALLEST
    large = loan_of(pool, 4 * SMALLEST)
    assert (pool.lent_bytes, pool.kept_bytes) == (4 * SMALLEST, 0)
    # Nothing was freed before the device was done with it.
    assert moment.waited == 4
    large.end()


def test_one_larger_than_the_limit_is_not_kept() -> None:
    pool, _ = pool_of(SMALLEST)
    moment, group = Moment(), Group()
    huge = loan_of(pool, 10 * SMALLEST, group=group)
    assert pool.lent_bytes >= 10 * SMALLEST
    waiting = Taking(pool, 1, group)
    assert not waiting.has_ended(0.2)
    huge.end(moment)
    assert moment.waited == 1
    assert waiting.has_ended(5)
    waiting.loan.end()
    assert pool.kept_bytes <= SMALLEST


class Taking(threading.Thread):
    """Takes memory, which may block."""

    def __init__(self, pool: PinnedPool, nbytes: int, group: Group) -> None:
        super().__init__(daemon=True)
        self.taken: list[torch.Tensor] = []
        self.loan = Loan(pool, group)
        self._nbytes = nbytes
        self.start()

    def run(self) -> None:
        self.taken.append(self.loan.take(self._nbytes))

    def has_ended(self, seconds: float) -> bool:
        self.join(seconds)
        return not self.is_alive()


def test_who_finds_nothing_left_waits_until_something_comes_back() -> None:
    pool, _ = pool_of(2 * SMALLEST)
    group = Group()
    first, second = loan_of(pool, 1, group=group), loan_of(pool, 1, group=group)
    waiting = Taking(pool, 1, group)
    assert not waiting.has_ended(0.2)
    first.end()
    assert waiting.has_ended(5)
    waiting.loan.end()
    second.end()
    assert Taking(pool, 2 * SMALLEST, group).has_ended(5)


def test_who_has_nothing_does_not_wait_for_others() -> None:
    """As these may wait for it, on another rank."""
    pool, _ = pool_of(2 * SMALLEST)
    loans = [loan_of(pool, 2 * SMALLEST)]
    for _ in range(3):
        taking = Taking(pool, 2 * SMALLEST, Group())
        loans.append(taking.loan)
        assert taking.has_ended(5)
    assert pool.lent_bytes == 8 * SMALLEST
    for loan in loans:
        loan.end()
    assert (pool.lent_bytes, pool.kept_bytes) == (0, 2 * SMALLEST)


def test_one_loan_never_waits_for_itself() -> None:
    pool, _ = pool_of(2 * SMALLEST)
    other, group = loan_of(pool, SMALLEST), Group()
    taking = Taking(pool, SMALLEST, group)
    assert taking.has_ended(5)
    taking.loan.take(4 * SMALLEST)
    assert pool.lent_bytes == 6 * SMALLEST
    taking.loan.end()
    other.end()
    assert pool.lent_bytes == 0


def test_memory_that_cannot_be_had_is_not_lent() -> None:
    def fail(nbytes: int) -> torch.Tensor:
        raise MemoryError

    pool = PinnedPool(fail, SMALLEST)
    with pytest.raises(MemoryError):
        loan_of(pool, 1)
    assert pool.lent_bytes == 0


def test_memory_that_the_device_never_gives_back_is_not_lent() -> None:
    class Broken(Moment):
        def synchronize(self) -> None:
            raise RuntimeError("the device is gone")

    pool, made = pool_of(SMALLEST)
    loan_of(pool, 1).end(Broken())
    for nbytes in (1, 2 * SMALLEST):  # The same buffer again, and one in its place.
        with pytest.raises(RuntimeError, match="is gone"):
            loan_of(pool, nbytes)
        assert pool.lent_bytes == 0
        loan_of(pool, 1).end(Broken())
    assert pool.kept_bytes <= SMALLEST
    assert made


def take_and_raise(loan: Loan) -> None:
    with loan:
        loan.take(1)
        loan.keep()
        raise MemoryError


def test_a_loan_ends_with_what_raises_once_the_device_is_past_it() -> None:
    pool, _ = pool_of(SMALLEST)
    moment = Moment()
    with pytest.raises(MemoryError):
        take_and_raise(Loan(pool, Group(moment)))
    assert pool.lent_bytes == 0
    assert moment.waited == 0
    loan_of(pool, 1).end()
    assert moment.waited == 1


def test_a_loan_that_is_kept_outlives_its_block() -> None:
    pool, _ = pool_of(SMALLEST)
    with Loan(pool, Group()) as loan:
        loan.take(1)
        loan.keep()
    assert pool.lent_bytes == SMALLEST
    loan.end()
    assert pool.lent_bytes == 0


def test_a_buffer_is_little_larger_than_what_is_asked_for() -> None:
    """A bucket of DDP may be a little more than a power of two."""
    mib = 1 << 20
    assert pinned._size_class((64 << 20) + (16 << 10)) == 72 * mib
    assert pinned._size_class(64 * mib) == 64 * mib
    assert pinned._size_class(0) == SMALLEST
    for nbytes in (1, SMALLEST + 1, 3 * mib, 100 * mib - 7):
        assert nbytes <= pinned._size_class(nbytes) <= max(SMALLEST + nbytes, nbytes * 9 / 8)
