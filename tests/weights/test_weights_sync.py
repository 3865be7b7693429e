"""Publishers and receivers over TCP: bits come over, in few bytes, and errors say what to do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import until
from test_weights_files import model, written

from sparsewire import SparseVector
from sparsewire.errors import (
    AuthenticationError,
    DataError,
    Error,
    InputError,
    MismatchError,
    Timeout,
)
from sparsewire.weights import Publisher, Receiver, Stage, Staged, as_numpy
from sparsewire.weights.sync import store

LIMIT_S = 20.0
Weights = dict[str, NDArray[Any]]


def weights(seed: int = 0) -> Weights:
    random = np.random.default_rng(seed)
    return {
        "large": random.integers(0, 2**16, (1100, 1000), dtype=np.uint16),
        "small": random.standard_normal(7).astype(np.float32),
        "table": random.integers(-9, 9, (64, 3), dtype=np.int8),
        "empty": np.zeros((0, 4), np.float16),
        "scalar": np.array(3.5),
    }


def copy(tensors: Weights) -> Weights:
    return {name: array.copy() for name, array in tensors.items()}


def step(tensors: Weights, number: int = 0) -> None:
    """Change few elements, as a training would."""
    tensors["large"].reshape(-1)[number % 97 :: 97] += 1
    tensors["small"][number % 7] *= -1
    tensors["table"][number % 64] += 1


def assert_alike(found: Weights, wanted: Weights) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].tobytes() == array.tobytes(), name


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher("127.0.0.1:0") as made:
        yield made


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
    fresh = weights()
    publisher.publish(fresh)
    mine = copy(fresh)
    with Receiver(publisher.address, mine) as receiver:
        receiver.stage(timeout=LIMIT_S).apply()
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


def anchors(publisher: Publisher) -> list[int]:
    """The versions that the publisher has whole."""
    messages = publisher.status()["messages"]
    return [each["version"] for each in messages if each["base"] is None]


def test_names_come_and_go(publisher: Publisher) -> None:
    fresh = weights()
    publisher.publish(fresh)
    mine = copy(fresh)
    with Receiver(publisher.address, mine) as receiver:
        receiver.stage(timeout=LIMIT_S).apply()
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
    fresh = weights()
    publisher.publish(fresh)
    mine = copy(fresh)
    with Receiver(publisher.address, mine) as receiver:
        receiver.stage(timeout=LIMIT_S).apply()
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
    fresh = weights()
    publisher.publish(fresh)
    mine = copy(fresh)
    with Receiver(publisher.address, mine) as receiver, ThreadPoolExecutor(2) as threads:
        receiver.stage(timeout=LIMIT_S).apply()
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
    fresh = weights()
    publisher.publish(fresh)
    mine = copy(fresh)
    with Receiver(publisher.address, mine) as receiver:
        receiver.stage(timeout=LIMIT_S).apply()
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


def test_waits_end(publisher: Publisher) -> None:
    with Receiver(publisher.address) as receiver:
        with pytest.raises(Timeout, match="nothing newer"):
            receiver.stage(timeout=0.1)
        publisher.publish(weights())
        with pytest.raises(Timeout, match="nothing newer"):
            receiver.stage(version=1, timeout=0.1)
        receiver.stage(timeout=LIMIT_S).apply()
        publisher.close()
        with pytest.raises(Timeout, match="did not answer in time"):
            receiver.stage(timeout=0.5)
    with pytest.raises(InputError, match="closed"):
        receiver.stage()
    with pytest.raises(InputError, match="closed"):
        publisher.publish(weights())


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


@pytest.mark.parametrize("readers", [2, 5])
def test_relays_pass_it_on(publisher: Publisher, readers: int) -> None:
    """All wait when a version comes: its bytes leave the publisher once, and go on from there."""
    fresh = weights()
    publisher.publish(fresh)
    mine = [copy(fresh) for _ in range(readers)]
    receivers = [
        Receiver(publisher.address, own, relay="127.0.0.1:0", name=f"reader {number}")
        for number, own in enumerate(mine)
    ]
    for receiver in receivers:
        receiver.stage(timeout=LIMIT_S).apply()
    before = publisher.status()["bytes_sent"]
    fresh["large"][:] = np.random.default_rng(3).integers(0, 2**16, (1100, 1000))
    waiting = [threading.Thread(target=follow, args=[each]) for each in receivers]
    for thread in waiting:
        thread.start()
    until(
        lambda: [each["doing"] for each in publisher.status()["readers"]] == ["waiting"] * readers
    )
    nbytes = publisher.publish(fresh).nbytes
    for thread in waiting:
        thread.join(LIMIT_S)
    for own in mine:
        assert_alike(own, fresh)
    assert publisher.status()["bytes_sent"] - before == nbytes
    assert sum(each.status()["bytes_sent"] for each in receivers) == (readers - 1) * nbytes
    until(lambda: all(each["is_newest"] for each in publisher.status()["readers"]))
    for receiver in receivers:
        receiver.close()
    until(lambda: not publisher.status()["readers"])


def follow(receiver: Receiver) -> None:
    receiver.stage(timeout=LIMIT_S).apply()


def test_a_relay_that_is_gone_costs_no_version(publisher: Publisher) -> None:
    fresh = weights()
    publisher.publish(fresh)
    relay = Receiver(publisher.address, relay="127.0.0.1:0")
    relay.stage(timeout=LIMIT_S).apply()
    address = relay.relay
    server = relay._subscriptions[0]._server
    assert server
    relay._loop.call(server.close)
    with Receiver(publisher.address) as receiver:
        staged = receiver.stage(timeout=LIMIT_S).apply()
        assert staged.way.nbytes_from_relays == 0
        until(lambda: publisher.status()["readers"][0]["relay"] != str(address))
    relay.close()


def test_a_publisher_comes_back(tmp_path: Path) -> None:
    fresh = weights()
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        address = publisher.address
        for number in range(3):
            step(fresh, number)
            publisher.publish(fresh)
        with pytest.raises(InputError, match="another process publishes"):
            Publisher("127.0.0.1:0", directory=tmp_path)
    mine = copy(fresh)
    with Receiver(address, mine) as receiver:
        with Publisher(address, directory=tmp_path) as publisher:
            assert publisher.version == 2
            assert receiver.stage(timeout=LIMIT_S).apply().nbytes == 0
            with pytest.raises(MismatchError, match="not newer than 2"):
                publisher.publish(fresh, version=2)
            step(fresh, 5)
            publisher.publish(fresh)
            receiver.stage(timeout=LIMIT_S).apply()
            assert_alike(mine, fresh)
        # It comes back with the state of before: a reader is ahead.
        (tmp_path / "000000000003-000000000002.delta").unlink()
        with Publisher(address, directory=tmp_path) as publisher:
            assert publisher.version == 2
            with pytest.raises(Timeout):
                receiver.stage(timeout=1)
            step(fresh, 6)
            with pytest.raises(MismatchError, match=r"a reader has version 3.*version=4"):
                publisher.publish(fresh)
            publisher.publish(fresh, version=4)
            receiver.stage(timeout=LIMIT_S).apply()
            assert_alike(mine, fresh)


def test_damaged_messages_on_the_disk_are_left_out(tmp_path: Path) -> None:
    fresh = weights()
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        for number in range(3):
            step(fresh, number)
            publisher.publish(fresh)
    newest = tmp_path / "000000000002-000000000001.delta"
    newest.write_bytes(newest.read_bytes()[:-1])
    (tmp_path / ".sparsewire.left").write_bytes(b"half a message")
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        assert publisher.version == 1
        assert not newest.exists()
        assert not (tmp_path / ".sparsewire.left").exists()


def test_a_full_disk_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = weights()
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        publisher.publish(fresh)
        step(fresh)
        with monkeypatch.context() as patch:
            patch.setattr(store, "mapped", full)
            with pytest.raises(OSError, match="No space left"):
                publisher.publish(fresh)
        assert publisher.version == 0
        assert not list(tmp_path.glob(".sparsewire*"))
        publisher.publish(fresh)
        with Receiver(publisher.address) as receiver:
            receiver.stage(timeout=LIMIT_S).apply()
            found = {name: as_numpy(tensor) for name, tensor in receiver.tensors.items()}
            assert_alike(found, fresh)


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


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


def test_watching(publisher: Publisher) -> None:
    fresh = weights()
    publisher.publish(fresh)
    mine = copy(fresh)
    seen: list[int] = []

    def apply(staged: Staged) -> None:
        seen.append(staged.version)
        if staged.version == 1:
            raise ValueError("not this one")
        staged.verify().apply()

    with Receiver(publisher.address, mine) as receiver:
        watch = receiver.watch(apply)
        for number in range(3):
            until(lambda last=number: seen == list(range(last + 1)))
            step(fresh, number)
            publisher.publish(fresh)
        until(lambda: receiver.version == 3)
        # The watch waits for the next version meanwhile.
        until(lambda: publisher.status()["readers"][0]["version"] == 3)
        assert publisher.status()["readers"][0]["doing"] == "waiting"
        watch.stop()
    assert seen == [0, 1, 2, 3]
    assert_alike(mine, fresh)


def test_watching_goes_on(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    staging, failed = Receiver._staging, []

    async def failing(self: Receiver, *rest: Any) -> Staged:
        if not failed:
            failed.append(True)
            raise MemoryError
        return await staging(self, *rest)

    monkeypatch.setattr(Receiver, "_staging", failing)
    publisher.publish(weights())
    with Receiver(publisher.address) as receiver:
        watch = receiver.watch(Staged.apply)
        until(lambda: receiver.version == 0)
        watch.stop()


def test_async_forms(publisher: Publisher) -> None:
    fresh = weights()
    mine = copy(fresh)

    async def main() -> None:
        with Receiver(publisher.address, mine) as receiver:
            waiting = asyncio.create_task(receiver.stage_async(timeout=LIMIT_S))
            await publisher.publish_async(fresh)
            staged = await waiting
            await staged.verify_async()
            await staged.apply_async()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(receiver.stage_async(), 0.2)
            step(fresh)
            await publisher.publish_async(fresh)
            await (await receiver.stage_async(timeout=LIMIT_S)).apply_async()

    asyncio.run(main())
    assert_alike(mine, fresh)


def test_files_are_a_base_and_a_source(publisher: Publisher, tmp_path: Path) -> None:
    path = written(tmp_path / "old.safetensors", model())
    publisher.publish(path)
    before = path.read_bytes()
    with Receiver(publisher.address, path) as receiver:
        assert receiver.stage(timeout=LIMIT_S).apply().nbytes == 0
        new = model()
        new["large"][1].reshape(-1)[::97] += 1
        publisher.publish(written(tmp_path / "new.safetensors", new))
        receiver.stage(timeout=LIMIT_S).apply()
        assert receiver.tensors["large"].data.tobytes() == new["large"][1].tobytes()
    assert path.read_bytes() == before
    with pytest.raises(DataError):
        publisher.publish(tmp_path)


def test_a_model_beside_the_base(publisher: Publisher) -> None:
    fresh = weights()
    publisher.publish(fresh)
    model, other = weights(5), weights(6)
    with Receiver(publisher.address) as receiver:
        receiver.stage(timeout=LIMIT_S).apply(model)
        assert_alike(model, fresh)
        for number, target in enumerate([model, model, other, model]):
            step(fresh, number)
            publisher.publish(fresh)
            receiver.stage(timeout=LIMIT_S).apply(target)
            assert_alike(target, fresh)


def test_torch_models(publisher: Publisher) -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(50, 8)
            self.norm = torch.nn.BatchNorm1d(8)
            self.head = torch.nn.Linear(8, 50, bias=False)
            self.head.weight = self.embedding.weight

    trained, read = Net().bfloat16(), Net().bfloat16()
    told = publisher.publish(trained)
    assert told.elements == 50 * 8 + 4 * 8 + 1
    with Receiver(publisher.address, read) as receiver:
        receiver.stage(timeout=LIMIT_S).apply()
        with torch.no_grad():
            trained.embedding.weight[3] = -0.0
            trained.norm.bias[2] = float("nan")
        publisher.publish(trained)
        receiver.stage(timeout=LIMIT_S).apply(read)
    for name, tensor in trained.state_dict().items():
        other = read.state_dict()[name]
        assert tensor.reshape(-1).view(torch.uint8).equal(other.reshape(-1).view(torch.uint8)), name
    assert read.head.weight is read.embedding.weight
    untied = Net().bfloat16()
    untied.head.weight = torch.nn.Parameter(torch.zeros(50, 8, dtype=torch.bfloat16))
    with Receiver(publisher.address, untied) as receiver:
        receiver.stage(timeout=LIMIT_S).apply()
        assert untied.head.weight.equal(trained.head.weight)
        assert untied.embedding.weight.equal(trained.embedding.weight)


@pytest.mark.parametrize(
    "dtype",
    ["bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "bool"],
)
def test_dtypes_of_torch(publisher: Publisher, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    width = torch.empty(0, dtype=kind).element_size()
    bits = torch.randint(0, 2 if dtype == "bool" else 256, (3, 40 * width), dtype=torch.uint8)
    fresh = {"w": bits.view(kind)}
    publisher.publish(fresh)
    mine = {"w": torch.zeros(3, 40 * width, dtype=torch.uint8).view(kind)}
    with Receiver(publisher.address, mine) as receiver:
        receiver.stage(timeout=LIMIT_S).apply()
        assert mine["w"].view(torch.uint8).equal(bits)
        bits[1, :width] = 1
        publisher.publish(fresh)
        receiver.stage(timeout=LIMIT_S).apply()
        assert mine["w"].view(torch.uint8).equal(bits)


def test_a_base_that_cannot_be_written() -> None:
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    for wrong in (fixed, np.zeros((4, 4))[:, ::2]):
        with pytest.raises(InputError, match="cannot be written in place"):
            Receiver("127.0.0.1:1", {"a": wrong})
    with pytest.raises(InputError, match="no named tensors"):
        Receiver("127.0.0.1:1", 3)
    with pytest.raises(InputError, match="no valid port"):
        Receiver("127.0.0.1:x")


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


def test_rows_of_a_table(publisher: Publisher) -> None:
    table = np.random.default_rng(0).standard_normal((1000, 8)).astype(np.float32)
    mine = {"table": table.copy(), "line": np.zeros(5, np.int64)}
    publisher.publish(mine)
    rows = SparseVector([3, 700], np.ones((2, 8), np.float32), length=1000)
    line = SparseVector([4], np.array([7]), length=5)
    with Receiver(publisher.address, mine) as receiver:
        receiver.stage(timeout=LIMIT_S).apply()
        assert publisher.publish({"table": rows, "line": line}).changed == 17
        receiver.stage(timeout=LIMIT_S).apply()
    table[[3, 700]] = 1
    assert_alike(mine, {"table": table, "line": np.array([0, 0, 0, 0, 7])})
    with pytest.raises(MismatchError, match="give it whole"):
        publisher.publish({"other": rows}, complete=False)
    with pytest.raises(MismatchError, match=r"table has dtype F32 and shape \[1000, 8\]"):
        publisher.publish({"table": line}, complete=False)
    for wrong in ([3, 3], [-1, 3], [3, 1000]):
        vector = SparseVector(wrong, np.ones((2, 8), np.float32), length=1000)
        with pytest.raises(InputError, match="must ascend from 0 to 999"):
            publisher.publish({"table": vector}, complete=False)
    assert publisher.version == 1
