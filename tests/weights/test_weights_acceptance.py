"""What ModelExpress asks of delta weight sync (ai-dynamo/modelexpress, issue 524, its acceptance
criteria A1 to A8), and of replicas that join, lag, are replaced or resume: a test for each line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arrays import LIMIT_S, Weights, assert_alike, copy, followed, step, weights
from hostile import publisher_that
from support import until
from test_weights_files import model, moved, written

from sparsewire.errors import DataError, MismatchError
from sparsewire.weights import Publisher, Receiver, Stage, as_numpy
from sparsewire.weights.readers.checkout import Checkout, read_mark
from sparsewire.weights.sync.channel import Channel, Document
from sparsewire.weights.sync.plan import Plan


class Engine:
    """Serves requests from its weights, all of them of one version, unless it is paused."""

    def __init__(self, tensors: Weights) -> None:
        self.weights = tensors
        self.served = 0
        self._may_serve = threading.Lock()
        self._ends = False
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        while not self._ends:
            with self._may_serve:
                self.served += 1
            time.sleep(0.001)

    @contextmanager
    def paused(self) -> Iterator[None]:
        with self._may_serve:
            before = self.served
            yield
            assert self.served == before

    def __enter__(self) -> Engine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True
        self._thread.join()


def found_in(receiver: Receiver) -> Weights:
    return {name: as_numpy(tensor) for name, tensor in receiver.tensors.items()}


def messages(publisher: Publisher) -> list[tuple[int, int | None]]:
    return [(each["version"], each["base"]) for each in publisher.status()["messages"]]


def test_a1_publish_source(publisher: Publisher) -> None:
    """A trainer registers one full checkpoint anchor and one compressed delta update."""
    fresh = weights()
    anchor = publisher.publish(fresh)
    step(fresh)
    delta = publisher.publish(fresh)
    assert messages(publisher) == [(0, None), (1, 0)]
    assert delta.nbytes < anchor.nbytes / 50


def test_a2_stage_before_pause(publisher: Publisher) -> None:
    """A worker asks for the next version, fetches it, rebuilds and checks it, and reports that it
    is staged, all before it pauses."""
    fresh = weights()
    publisher.publish(fresh)
    with (
        Engine(copy(fresh)) as engine,
        Receiver(publisher.address, engine.weights) as receiver,
    ):
        receiver.stage(timeout=LIMIT_S).apply()
        before = copy(engine.weights)
        step(fresh)
        publisher.publish(fresh)
        served = engine.served
        staged = receiver.stage(timeout=LIMIT_S).verify()
        assert staged.stage is Stage.VERIFIED
        until(lambda: publisher.status()["readers"][0]["verified"] == 1)
        assert publisher.status()["readers"][0]["version"] == 0
        until(lambda: engine.served > served)
        assert_alike(engine.weights, before)
        staged.apply()
        until(lambda: publisher.status()["readers"][0]["version"] == 1)


def test_a3_apply_through_a_runtime(publisher: Publisher) -> None:
    """A worker pauses, applies the staged version, verifies the final version, and resumes."""
    fresh = weights()
    publisher.publish(fresh)
    with (
        Engine(copy(fresh)) as engine,
        Receiver(publisher.address, engine.weights) as receiver,
    ):
        receiver.stage(timeout=LIMIT_S).apply()
        step(fresh)
        publisher.publish(fresh)
        staged = receiver.stage(timeout=LIMIT_S).verify()
        with engine.paused():
            staged.apply()
            assert receiver.version == publisher.version == 1
            assert_alike(engine.weights, fresh)
        served = engine.served
        until(lambda: engine.served > served)


def test_a4_a_disk_reload_path(publisher: Publisher, tmp_path: Path) -> None:
    """A worker patches a host-local checkpoint, which a runtime reloads as it does any other."""
    library = pytest.importorskip("safetensors.numpy")
    local = tmp_path / "local"
    local.mkdir()
    seed = written(tmp_path / "seed.safetensors", without_bf16(model()))
    (local / "model.safetensors").write_bytes(seed.read_bytes())
    publisher.publish(seed)
    with Receiver(publisher.address, Checkout(local)) as receiver:
        assert receiver.stage(timeout=LIMIT_S).apply().nbytes == 0
        new = without_bf16(moved(model()))
        publisher.publish(written(tmp_path / "new.safetensors", new))
        assert not receiver.stage(timeout=LIMIT_S).apply().way.is_whole
    assert read_mark(local) == 1
    loaded = library.load_file(local / "model.safetensors")
    assert_alike(loaded, {name: array for name, (_, array) in new.items()})


def without_bf16(tensors: dict[str, Any]) -> dict[str, Any]:
    """NumPy has no such dtype, so the library cannot load it."""
    return {
        name: ("U16" if dtype == "BF16" else dtype, array)
        for name, (dtype, array) in tensors.items()
    }


class Module:
    """A model whose tensors are given for good."""

    def __init__(self, tensors: Weights) -> None:
        self._tensors = tensors

    def state_dict(self) -> Weights:
        return self._tensors


def other_shape(mine: Weights) -> Weights:
    return mine | {"small": np.zeros(8, np.float32)}


def other_dtype(mine: Weights) -> Weights:
    return mine | {"small": np.zeros(7, np.int32)}


def other_layout(mine: Weights) -> Weights:
    return {name: array for name, array in mine.items() if name != "small"}


@pytest.mark.parametrize("other", [other_shape, other_dtype, other_layout])
def test_a5_refuse_other_tensors(publisher: Publisher, other: Callable[[Weights], Weights]) -> None:
    """A delta whose tensor metadata or layout do not match the worker's is refused before the
    runtime's weights change."""
    publisher.publish(weights())
    mine = other(weights(1))
    before = copy(mine)
    with (
        Receiver(publisher.address, Module(mine)) as receiver,
        pytest.raises(MismatchError, match="small"),
    ):
        receiver.stage(timeout=LIMIT_S).apply()
    assert_alike(mine, before)


def test_a5_refuse_another_base_version(publisher: Publisher) -> None:
    """A delta whose base version is not the worker's is refused before the weights change."""
    fresh = weights()
    publisher.publish(fresh)
    step(fresh)
    publisher.publish(fresh)
    entry = publisher._chain.entries[-1]
    memory = publisher._store.memory(entry)

    async def answer(channel: Channel, request: Document) -> None:
        if request["op"] == "want":
            plan = Plan("other", 1, entry.made, 9, [entry], [None])
            await channel.send(plan.document())
            return
        await channel.send({"size": entry.size})
        await channel.send_run(memory[request["begin"] : request["end"]])

    mine = weights(1)
    with (
        publisher_that(answer) as address,
        Receiver(address, mine) as receiver,
        pytest.raises(MismatchError, match="version 1 is made of version 0"),
    ):
        receiver.stage(timeout=LIMIT_S).apply()
    assert_alike(mine, weights(1))


def test_a5_refuse_other_checksums(publisher: Publisher) -> None:
    """A delta whose checksums do not match is refused before the weights change: those of its bytes
    when it is staged, those of new tensors when it is verified."""
    with followed(publisher) as (fresh, mine, receiver):
        step(fresh)
        publisher.publish(fresh)
        staged = receiver.stage(timeout=LIMIT_S)
        mine["large"][0, 0] ^= 1
        before = copy(mine)
        with pytest.raises(MismatchError, match="large has other bits here"):
            staged.apply()
        held = publisher._shelf.get(publisher._chain.entries[-1].key)
        assert held
        damaged = bytearray(held.memory)
        damaged[40] ^= 1
        held.memory = memoryview(damaged)
        # The whole version would pass this message as well, as there is no newer anchor.
        with pytest.raises(DataError, match="came damaged twice"):
            receiver.stage(timeout=LIMIT_S)
        assert_alike(mine, before)


def test_a6_recover_by_replay(publisher: Publisher) -> None:
    """A worker that is stale or began anew replays deltas from the latest checkpoint anchor."""
    fresh = weights()
    publisher.publish(fresh)
    mine = copy(fresh)
    with Receiver(publisher.address, mine) as stale, Receiver(publisher.address) as anew:
        stale.stage(timeout=LIMIT_S).apply()
        for number in range(5):
            step(fresh, number)
            publisher.publish(fresh)
        staged = stale.stage(timeout=LIMIT_S).apply()
        assert (staged.version, staged.way.messages, staged.way.is_whole) == (5, 5, False)
        assert_alike(mine, fresh)
        staged = anew.stage(timeout=LIMIT_S).apply()
        assert (staged.version, staged.way.messages, staged.way.is_whole) == (5, 6, True)
        assert_alike(found_in(anew), fresh)


def test_a6_recover_by_a_full_checkpoint() -> None:
    """A worker that missed more versions than are kept gets the full checkpoint, and is told."""
    fresh = weights()
    with Publisher("127.0.0.1:0", keep=2) as publisher:
        publisher.publish(fresh)
        mine = copy(fresh)
        with Receiver(publisher.address, mine) as stale:
            stale.stage(timeout=LIMIT_S).apply()
            for number in range(40):
                step(fresh, number)
                publisher.publish(fresh)
                publisher._make_anchor()
            staged = stale.stage(timeout=LIMIT_S).apply()
            assert staged.way.is_whole
            assert staged.way.messages < 5
            assert_alike(mine, fresh)


def test_a7_split_timing(publisher: Publisher) -> None:
    """Publishing, fetching, processing and applying are told apart, and so is the wait before; a
    pause is `applying` and what the runtime itself adds."""
    fresh = weights()
    assert publisher.publish(fresh).seconds > 0
    with Receiver(publisher.address) as receiver:
        begin = time.perf_counter()
        staged = receiver.stage(timeout=LIMIT_S)
        assert staged.seconds.fetching > 0
        assert (staged.seconds.verifying, staged.seconds.applying) == (0, 0)
        staged.verify()
        assert staged.seconds.verifying > 0
        assert staged.seconds.applying == 0
        staged.apply()
        assert staged.seconds.applying > 0
        assert sum(staged.seconds) <= time.perf_counter() - begin


def test_a8_the_result_is_the_full_checkpoint(publisher: Publisher, tmp_path: Path) -> None:
    """What a chain of deltas makes is byte for byte the full checkpoint of the target."""
    (tmp_path / "local").mkdir()
    tensors = model()
    with Receiver(publisher.address, Checkout(tmp_path / "local")) as receiver:
        for number in range(4):
            full = tmp_path / f"{number}" / "model.safetensors"
            full.parent.mkdir()
            publisher.publish(written(full, tensors).parent)
            receiver.stage(timeout=LIMIT_S).apply()
            tensors = moved(tensors)
        assert (tmp_path / "local/model.safetensors").read_bytes() == full.read_bytes()


def test_replicas_join_lag_and_are_replaced(publisher: Publisher) -> None:
    """One joins late, one lags, and one takes the name of another that was lost."""
    fresh = weights()
    mine = copy(fresh)
    publisher.publish(fresh)
    lags = Receiver(publisher.address, mine, name="lags")
    lost = Receiver(publisher.address, copy(fresh), name="replica")
    for each in (lags, lost):
        each.stage(timeout=LIMIT_S).apply()
    lost.close()
    for number in range(3):
        step(fresh, number)
        publisher.publish(fresh)
    with (
        lags,
        Receiver(publisher.address, name="replica") as replaced,
        Receiver(publisher.address, name="joins") as joins,
    ):
        for each in (joins, replaced, lags):
            each.stage(timeout=LIMIT_S).apply()
            assert_alike(found_in(each), fresh)
        until(lambda: versions(publisher) == {"lags": 3, "replica": 3, "joins": 3})


def versions(publisher: Publisher) -> dict[str, int]:
    rows = publisher.status()["readers"]
    assert len({row["name"] for row in rows}) == len(rows)
    return {row["name"]: row["version"] for row in rows}


def test_all_resume(tmp_path: Path) -> None:
    """The publisher comes back from its directory, a worker from its checkpoint, and only what
    changed goes over."""
    tensors = model()
    local = tmp_path / "local"
    with Publisher("127.0.0.1:0", directory=tmp_path / "chain") as publisher:
        publisher.publish(written(tmp_path / "model.safetensors", tensors))
        with Receiver(publisher.address, Checkout(local)) as receiver:
            receiver.stage(timeout=LIMIT_S).apply()
    with Publisher("127.0.0.1:0", directory=tmp_path / "chain") as publisher:
        assert publisher.version == 0
        full = written(tmp_path / "model.safetensors", moved(tensors))
        told = publisher.publish(full)
        with Receiver(publisher.address, Checkout(local)) as receiver:
            staged = receiver.stage(timeout=LIMIT_S).apply()
            assert (staged.version, staged.nbytes) == (1, told.nbytes)
    assert (local / "model.safetensors").read_bytes() == full.read_bytes()
