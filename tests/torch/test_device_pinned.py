"""The pool of pinned memory: what is used again, what is waited for, and how much there is."""

from __future__ import annotations

import threading

import pytest
import torch

from sparsewire.device.pinned import PinnedPool

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


def pool_of(limit: int) -> tuple[PinnedPool, list[int]]:
    made: list[int] = []

    def allocate(nbytes: int) -> torch.Tensor:
        made.append(nbytes)
        return torch.empty(nbytes, dtype=torch.uint8)

    return PinnedPool(allocate, limit), made


def test_memory_is_used_again_once_the_device_is_done_with_it() -> None:
    pool, made = pool_of(4 * SMALLEST)
    first, moment = pool.take(1000), Moment()
    assert first.numel() >= 1000
    pool.give_back(first, moment)
    assert moment.waited == 0
    again = pool.take(SMALLEST)
    assert again.data_ptr() == first.data_ptr()
    assert moment.waited == 1
    assert made == [SMALLEST]
    assert pool.lent_bytes == SMALLEST
    pool.give_back(again)
    assert (pool.lent_bytes, pool.kept_bytes) == (0, SMALLEST)


def test_what_is_lent_and_kept_stays_below_the_limit() -> None:
    pool, _ = pool_of(4 * SMALLEST)
    small, moment = [pool.take(SMALLEST) for _ in range(4)], Moment()
    for buffer in small:
        pool.give_back(buffer, moment)
    assert pool.kept_bytes == 4 * SMALLEST
    large = pool.take(4 * SMALLEST)
    assert (pool.lent_bytes, pool.kept_bytes) == (4 * SMALLEST, 0)
    # Nothing was freed before the device was done with it.
    assert moment.waited == 4
    pool.give_back(large)


def test_one_larger_than_the_limit_goes_alone_and_is_not_kept() -> None:
    pool, _ = pool_of(SMALLEST)
    moment = Moment()
    huge = pool.take(10 * SMALLEST)
    assert huge.numel() >= 10 * SMALLEST
    waiting = Taking(pool, 1)
    assert not waiting.has_ended(0.2)
    pool.give_back(huge, moment)
    assert moment.waited == 1
    assert waiting.has_ended(5)
    pool.give_back(waiting.taken[0])
    assert pool.kept_bytes <= SMALLEST


class Taking(threading.Thread):
    """Takes memory, which may block."""

    def __init__(self, pool: PinnedPool, nbytes: int) -> None:
        super().__init__(daemon=True)
        self.taken: list[torch.Tensor] = []
        self._pool, self._nbytes = pool, nbytes
        self.start()

    def run(self) -> None:
        self.taken.append(self._pool.take(self._nbytes))

    def has_ended(self, seconds: float) -> bool:
        self.join(seconds)
        return not self.is_alive()


def test_who_finds_nothing_left_waits_until_something_comes_back() -> None:
    pool, _ = pool_of(2 * SMALLEST)
    first, second = pool.take(1), pool.take(1)
    waiting = Taking(pool, 1)
    assert not waiting.has_ended(0.2)
    pool.give_back(first)
    assert waiting.has_ended(5)
    assert waiting.taken[0].data_ptr() == first.data_ptr()
    pool.give_back(waiting.taken[0])
    pool.give_back(second)
    assert Taking(pool, 2 * SMALLEST).has_ended(5)


def test_memory_that_cannot_be_had_is_not_lent() -> None:
    def fail(nbytes: int) -> torch.Tensor:
        raise MemoryError

    pool = PinnedPool(fail, SMALLEST)
    with pytest.raises(MemoryError):
        pool.take(1)
    assert pool.lent_bytes == 0
