"""Publishers and receivers over TCP: bits come over, in few bytes, and errors say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pytest
from arrays import LIMIT_S, anchors, assert_alike, copy, followed, step, weights
from numpy.typing import NDArray
from support import until

from sparsewire.errors import (
    AuthenticationError,
    Error,
    InputError,
    MismatchError,
    Timeout,
)
from sparsewire.weights import Publisher, Receiver, Stage, as_numpy


def test_only_what_changed_comes(publisher: Publisher) -> None:
    fresh = weights()
    publisher.publish(fresh)
    mine = copy(fresh)
    with Receiver(publisher.address, mine) as receiver:
        first = receiver.stage(timeout=LIMIT_S)
        assert (first.version, first.nbytes) == (0, 0)
        first.apply()
        for number in range(3):
            step(fresh, number)
            told = publisher.publish(fresh)
            staged = receiver.stage(timeout=LIMIT_S)
            assert staged.version == told.version == number + 1
            assert staged.nbytes == told.nbytes < 2 * told.changed
            assert set(staged.changed) == {"large", "small", "table"}
            staged.verify().apply()
            assert_alike(mine, fresh)
        assert receiver.version == 3


def test_the_first_version_comes_whole(publisher: Publisher) -> None:
    publisher.publish(weights(), version=7)
    with Receiver(publisher.address) as receiver:
        staged = receiver.stage(timeout=LIMIT_S)
        assert staged.way.is_whole
        assert not receiver.tensors
        staged.apply()
        assert receiver.version == 7
        found = {name: as_numpy(tensor) for name, tensor in receiver.tensors.items()}
        assert_alike(found, weights())


def test_another_base_gets_the_whole(publisher: Publisher) -> None:
    publisher.publish(weights())
    mine = weights(1)
    with Receiver(publisher.address, mine) as receiver:
        staged = receiver.stage(timeout=LIMIT_S).apply()
        assert staged.way.is_whole
        assert_alike(mine, weights())


def test_a_reader_that_lags_gets_fewest_bytes(publisher: Publisher) -> None:
    with followed(publisher) as (fresh, mine, receiver):
        sizes = []
        for number in range(5):
            step(fresh, number)
            sizes.append(publisher.publish(fresh).nbytes)
        staged = receiver.stage(timeout=LIMIT_S)
        assert (staged.version, staged.way.messages, staged.nbytes) == (5, 5, sum(sizes))
        staged.apply()
        assert_alike(mine, fresh)
        random = np.random.default_rng(0)
        for _ in range(4):
            half = random.random((1100, 1000)) < 0.5
            fresh["large"][half] = random.integers(0, 2**16, half.sum())
            publisher.publish(fresh)
        until(lambda: max(anchors(publisher)) > 5)
        staged = receiver.stage(timeout=LIMIT_S)
        assert staged.way.is_whole
        assert staged.nbytes < sum(each["bytes"] for each in publisher.status()["messages"][-4:])
        staged.apply()
        assert_alike(mine, fresh)


def test_names_come_and_go(publisher: Publisher) -> None:
    with followed(publisher) as (fresh, mine, receiver):
        fresh["added"] = np.arange(5, dtype=np.int64)
        fresh["zeros"] = np.zeros(3, np.float16)
        del fresh["table"]
        publisher.publish(fresh)
        receiver.stage(timeout=LIMIT_S).apply()
        assert_alike(mine, fresh)
        publisher.publish({"small": np.ones(7, np.float32)}, complete=False)
        receiver.stage(timeout=LIMIT_S).apply()
        assert_alike(mine, fresh | {"small": np.ones(7, np.float32)})


def test_names_that_are_gone_in_a_whole_version(publisher: Publisher) -> None:
    """It names none that went, as it has no base; a reader that lags knows them."""
    fresh = weights()
    publisher.publish(fresh)
    mine = copy(fresh) | {"own": np.zeros(3)}
    with Receiver(publisher.address, mine) as receiver:
        receiver.stage(timeout=LIMIT_S).apply()
        del fresh["table"]
        random = np.random.default_rng(0)
        for _ in range(3):
            fresh["large"] = random.integers(0, 2**16, (1100, 1000), dtype=np.uint16)
            publisher.publish(fresh)
        until(lambda: max(anchors(publisher)) > 2)
        assert receiver.stage(timeout=LIMIT_S).apply().way.is_whole
        assert_alike(mine, fresh | {"own": np.zeros(3)})


def test_before_apply_nothing_changes(publisher: Publisher) -> None:
    with followed(publisher) as (fresh, mine, receiver):
        step(fresh)
        publisher.publish(fresh)
        staged = receiver.stage(timeout=LIMIT_S)
        assert staged.stage is Stage.STAGED
        assert staged.verify() is staged
        until(lambda: publisher.status()["readers"][0]["verified"] == 1)
        assert publisher.status()["readers"][0]["version"] == 0
        assert staged.stage is Stage.VERIFIED
        assert_alike(mine, weights())
        again = receiver.stage(timeout=LIMIT_S)
        staged.apply()
        assert_alike(mine, fresh)
        with pytest.raises(InputError, match="was applied already"):
            staged.apply()
        with pytest.raises(InputError, match="staged over another version"):
            again.apply()
        assert_alike(mine, fresh)


def test_one_of_two_threads_applies(publisher: Publisher) -> None:
    """Versions 1 and 2 over version 0 at once: the later one would be over the wrong base."""
    with followed(publisher) as (fresh, mine, receiver), ThreadPoolExecutor(2) as threads:
        staged = []
        for _ in range(2):
            step(fresh)
            publisher.publish(fresh)
            staged.append(receiver.stage(timeout=LIMIT_S).verify())
        with receiver._weights._busy:
            applied = [threads.submit(each.apply) for each in staged]
            wait(applied, 0.2)
        assert sorted(each.exception() is None for each in applied) == [False, True]
        receiver.stage(version=2, timeout=LIMIT_S).apply()
        assert_alike(mine, fresh)


def test_a_base_that_somebody_changed(publisher: Publisher) -> None:
    with followed(publisher) as (fresh, mine, receiver):
        mine["large"][0, 0] ^= 1
        before = copy(mine)
        step(fresh)
        publisher.publish(fresh)
        staged = receiver.stage(timeout=LIMIT_S)
        with pytest.raises(MismatchError, match="large has other bits here"):
            staged.apply()
        assert_alike(mine, before)


def test_shapes_and_dtypes_stay(publisher: Publisher) -> None:
    publisher.publish(weights())
    for wrong in (np.zeros(8, np.float32), np.zeros(7, np.float64)):
        with pytest.raises(MismatchError, match="small has dtype F32 and shape"):
            publisher.publish(weights() | {"small": wrong})
    assert publisher.version == 0
    mine = weights() | {"small": np.zeros(8, np.float32)}
    with (
        Receiver(publisher.address, mine) as receiver,
        pytest.raises(MismatchError, match="small has dtype F32"),
    ):
        receiver.stage(timeout=LIMIT_S)


def test_what_is_not_published(publisher: Publisher) -> None:
    for wrong, words in (
        (3, "no named tensors"),
        ([("a", np.zeros(1)), ("a", np.zeros(1))], "a is there twice"),
        ([3], "no pair"),
        ({3: np.zeros(1)}, "no name"),
        ({"a": np.zeros(1, "U3")}, "dtype str"),
    ):
        with pytest.raises(InputError, match=words):
            publisher.publish(wrong)
    with pytest.raises(InputError, match="no number"):
        publisher.publish(weights(), version=-1)
    assert publisher.version is None
    assert publisher.publish(weights(), version=4).version == 4
    for version in (3, 4):
        with pytest.raises(MismatchError, match="not newer than 4"):
            publisher.publish(weights(), version=version)


def test_a_version_that_is_gone(publisher: Publisher) -> None:
    for _ in range(2):
        publisher.publish(weights(), version=None if publisher.version is None else 5)
    with Receiver(publisher.address) as receiver:
        with pytest.raises(Error, match=r"version 3 is not there, .* has versions 0 to 5"):
            receiver.stage(version=3, timeout=LIMIT_S)
        assert receiver.stage(version=0, timeout=LIMIT_S).apply().version == 0


def test_secrets() -> None:
    with pytest.raises(InputError, match="at least 16"):
        Publisher("127.0.0.1:0", secret="short")
    with Publisher("127.0.0.1:0", secret="one secret for all") as publisher:
        publisher.publish(weights())
        with (
            Receiver(publisher.address, secret="another secret for all") as receiver,
            pytest.raises(AuthenticationError, match="the secrets differ"),
        ):
            receiver.stage(timeout=LIMIT_S)
        with Receiver(publisher.address, secret=b"one secret for all") as receiver:
            assert receiver.stage(timeout=LIMIT_S).version == 0


def test_a_tensor_that_fails_publishes_nothing(publisher: Publisher) -> None:
    fresh = weights()
    publisher.publish(fresh)
    step(fresh)

    def failing() -> Iterator[tuple[str, NDArray[Any]]]:
        yield "large", fresh["large"]
        raise RuntimeError("the gather failed")

    with pytest.raises(RuntimeError, match="gather"):
        publisher.publish(failing())
    assert publisher.version == 0
    publisher.publish(iter(fresh.items()))
    with Receiver(publisher.address, weights()) as receiver:
        assert receiver.stage(timeout=LIMIT_S).apply().version == 1


def test_another_publisher_begins_a_chain() -> None:
    """Its versions are numbered anew, and readers follow; they do not bind its numbers."""
    fresh = weights()
    mine = copy(fresh)
    with Publisher("127.0.0.1:0") as publisher:
        address = publisher.address
        publisher.publish(fresh, version=5)
        receiver = Receiver(address, mine)
        receiver.stage(timeout=LIMIT_S).apply()
    with receiver, Publisher(address) as publisher:
        step(fresh)
        assert publisher.publish(fresh).version == 0
        staged = receiver.stage(timeout=LIMIT_S)
        assert (staged.version, staged.way.is_whole) == (0, True)
        receiver.stage(timeout=LIMIT_S).apply()
        assert_alike(mine, fresh)
        step(fresh, 1)
        assert publisher.publish(fresh).version == 1
        staged = receiver.stage(timeout=LIMIT_S).apply()
        assert (staged.version, staged.way.is_whole) == (1, False)
        assert_alike(mine, fresh)


def test_other_bits_under_the_number_that_a_reader_has() -> None:
    """A publisher that was started anew, without its directory, gets as far while nobody looks."""
    fresh = weights()
    mine = copy(fresh)
    with Publisher("127.0.0.1:0") as publisher:
        address = publisher.address
        publisher.publish(fresh)
        receiver = Receiver(address, mine)
        receiver.stage(timeout=LIMIT_S).apply()
    step(fresh)
    with Publisher(address) as publisher, receiver:
        publisher.publish(fresh)
        assert receiver.stage(timeout=LIMIT_S).apply().version == 0
        assert_alike(mine, fresh)
        with pytest.raises(Timeout):
            receiver.stage(timeout=0.3)


def test_versions_of_the_same_bits_only_grow() -> None:
    fresh = weights()
    with Publisher("127.0.0.1:0") as publisher, Receiver(publisher.address, fresh) as receiver:
        publisher.publish(fresh)
        receiver.stage(timeout=LIMIT_S).apply()
        publisher.publish(fresh)
        earlier = receiver.stage(timeout=LIMIT_S)
        publisher.publish(fresh)
        receiver.stage(timeout=LIMIT_S).apply()
        with pytest.raises(InputError, match="staged over another version"):
            earlier.apply()
        assert receiver.version == 2


def test_a_publisher_for_everybody_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with Publisher("127.0.0.1:0"), Publisher("0.0.0.0:0", secret="one secret for all"):
        assert not caplog.records
    with Publisher("0.0.0.0:0"):
        assert "anybody who reaches 0.0.0.0:" in caplog.text
