"""Messages of trainers' parts reach a reader's weights through a layout, however late it is."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from support import until

from sparsewire.errors import DataError, InputError, Timeout
from sparsewire.weights import Publisher, Receiver, ShardReceiver, files
from sparsewire.weights.shards.layout import Layout
from sparsewire.weights.shards.parallel import column, gate_up, row
from sparsewire.weights.shards.places import part
from sparsewire.weights.shards.resharding import Resharding
from sparsewire.weights.shards.views import View
from sparsewire.weights.versions.coding import Coder
from sparsewire.weights.versions.message import Delta
from sparsewire.weights.versions.snapshot import Snapshot
from sparsewire.weights.versions.tensors import Tensor

Arrays = dict[str, Any]
SHAPES = {"gate": (8, 6), "up": (8, 6), "down": (6, 8), "norm": (6,)}


@pytest.fixture
def coder() -> Iterator[Coder]:
    with Coder(2) as coder:
        yield coder


def version(number: int) -> Arrays:
    """Each moves some numbers of the one before by little, and some by much."""
    random = np.random.default_rng(number)
    if number == 0:
        return {name: random.standard_normal(s).astype("f2") for name, s in SHAPES.items()}
    made = version(number - 1)
    for bits in (array.view("u2") for array in made.values()):
        near, far = random.random((2, *bits.shape)) < 0.2
        bits[near] += 1
        if number % 2:
            bits[far] = random.integers(0, 2**16, far.sum())
    return made


def parts(weights: Arrays, rank: int | None = None) -> Arrays:
    """What two trainers publish, or one of them: each has half of the rows."""
    found = []
    for name, array in weights.items():
        middle = len(array) // 2
        rows = [(0, array[:middle]), (middle, array[middle:])]
        for first, own in rows if rank is None else [rows[rank]]:
            begin = (first, *(0 for _ in array.shape[1:]))
            found.append(part(name, own.copy(), array.shape, begin).item)
    return dict(found)


def saved(folder: Path, number: int, rank: int | None = None) -> Snapshot:
    path = folder / f"{number}.{rank}.safetensors"
    save_file(parts(version(number), rank), path)
    return Snapshot(path)


def message(folder: Path, old: int, new: int, rank: int | None = None) -> Delta:
    ends = saved(folder, old, rank), saved(folder, new, rank)
    name = folder / f"{old}-{new}.{rank}.delta"
    return files.diff(*ends, str(new), str(old), name, lambda nbytes: None)


def layout() -> Layout:
    """The second of two ranks in tensor parallelism."""
    whole = {name: View.whole(name, shape) for name, shape in SHAPES.items()}
    return Layout(
        {
            "gate_up": gate_up(whole["gate"], whole["up"], 1, 2),
            "down": row(whole["down"], 1, 2),
            "norm": whole["norm"],
        }
    )


def loaded(number: int) -> Arrays:
    """The reader's weights of a version."""
    full = version(number)
    return {
        "gate_up": np.concatenate([full["gate"][4:], full["up"][4:]]),
        "down": full["down"][:, 4:].copy(),
        "norm": full["norm"],
    }


def check(found: Arrays, number: int) -> None:
    for name, array in loaded(number).items():
        np.testing.assert_array_equal(found[name].view("u2"), array.view("u2"), err_msg=name)


@pytest.mark.parametrize("chain", [[0, 1], [0, 1, 2, 3, 4], [2, 4, 5]])
def test_a_chain_of_messages_is_written_at_once(
    tmp_path: Path, coder: Coder, chain: list[int]
) -> None:
    weights = loaded(chain[0])
    deltas = [message(tmp_path, *pair) for pair in pairwise(chain)]
    writes = Resharding(layout(), weights).changes(deltas, coder)
    check(weights, chain[0])  # Nothing is written before.
    for write in writes:
        write.write()
    check(weights, chain[-1])


def test_each_trainer_publishes_its_own(tmp_path: Path, coder: Coder) -> None:
    weights = loaded(0)
    resharding = Resharding(layout(), weights)
    for rank in range(2):
        for write in resharding.changes([message(tmp_path, 0, 1, rank)], coder):
            write.write()
    check(weights, 1)


def test_a_reader_of_two_publishers() -> None:
    weights = loaded(3)
    resharding, published = Resharding(layout(), weights), dict[str, Tensor]()
    for rank in range(2):
        with Publisher("127.0.0.1:0", secret="a long secret of trainers") as publisher:
            publisher.publish(parts(version(0), rank))
            publisher.publish(parts(version(1), rank))
            with Receiver(publisher.address, secret="a long secret of trainers") as receiver:
                receiver.stage(timeout=20).apply()
                published |= receiver.tensors
    resharding.check(published)
    for write in resharding.everything(published):
        write.write()
    check(weights, 1)


def test_a_whole_version_is_written_over_any_other(tmp_path: Path) -> None:
    weights = loaded(3)
    for write in Resharding(layout(), weights).everything(saved(tmp_path, 1).tensors):
        write.write()
    check(weights, 1)


def test_new_tensors_are_written_over_what_was_there(tmp_path: Path, coder: Coder) -> None:
    save_file({"other": np.zeros(1)}, tmp_path / "nothing.safetensors")
    old, target = Snapshot(tmp_path / "nothing.safetensors"), tmp_path / "new.delta"
    deltas = [files.diff(old, saved(tmp_path, 1), "1", "0", target, lambda nbytes: None)]
    deltas.append(message(tmp_path, 1, 2))
    weights = loaded(4)
    for write in Resharding(layout(), weights).changes(deltas, coder):
        write.write()
    check(weights, 2)


def test_second_names_of_published_tensors(tmp_path: Path, coder: Coder) -> None:
    delta = message(tmp_path, 0, 1)
    spans = delta.spans()
    delta.aliases = {key.replace("down", "tied"): key for key in spans if "down" in key}
    weights = {"head": version(0)["down"][:3].copy()}
    views = {"head": column(View.whole("tied", SHAPES["down"]), 0, 2)}
    resharding = Resharding(Layout(views), weights)
    resharding.check(spans, delta.aliases)
    for number, writes in [
        (1, resharding.changes([delta], coder)),
        (2, resharding.everything(saved(tmp_path, 2).tensors, delta.aliases)),
    ]:
        for write in writes:
            write.write()
        expected = version(number)["down"][:3].view("u2")
        np.testing.assert_array_equal(weights["head"].view("u2"), expected)


def test_parts_that_are_missing_are_told(tmp_path: Path) -> None:
    resharding = Resharding(layout(), loaded(0))
    published = saved(tmp_path, 0).tensors
    resharding.check(published)
    with pytest.raises(DataError, match="24 elements of gate are in no part"):
        resharding.check({key: each for key, each in published.items() if key != "gate[4:8,0:6]"})
    with pytest.raises(DataError, match="nobody publishes down"):
        resharding.check({key: each for key, each in published.items() if "down" not in key})


def test_elements_that_share_bytes_are_not_cut() -> None:
    published = {"norm": Tensor("F4", (6,), np.zeros(3, np.uint8))}
    with pytest.raises(DataError, match="publish its bytes"):
        next(Resharding(layout(), loaded(0)).everything(published))


def test_weights_that_cannot_be_written_are_refused() -> None:
    weights = loaded(0)
    weights["norm"].flags.writeable = False
    with pytest.raises(InputError, match="norm"):
        Resharding(layout(), weights)
    with pytest.raises(DataError, match="which the model has not"):
        Resharding(layout(), {})


def test_weights_of_torch(tmp_path: Path, coder: Coder) -> None:
    torch = pytest.importorskip("torch")
    weights = {name: torch.from_numpy(array) for name, array in loaded(0).items()}
    for write in Resharding(layout(), weights).changes([message(tmp_path, 0, 1)], coder):
        write.write()
    check({name: each.numpy() for name, each in weights.items()}, 1)
    twice = {"a": weights["norm"], "b": weights["norm"]}
    with pytest.raises(DataError, match="b and a are one tensor"):
        Resharding(Layout.identity(twice), twice)


def test_a_reader_follows_all_publishers() -> None:
    weights = loaded(5)
    with Publisher("127.0.0.1:0") as one, Publisher("127.0.0.1:0") as other:
        publishers = (one, other)

        def publish(number: int) -> None:
            for rank, publisher in enumerate(publishers):
                publisher.publish(parts(version(number), rank), version=number)

        addresses = [each.address for each in publishers]
        with ShardReceiver(addresses, weights, layout(), name="shard") as receiver:
            publish(0)
            staged = receiver.stage(timeout=20).verify()
            assert staged.way.is_whole
            check(weights, 5)
            staged.apply()
            check(weights, 0)
            publish(1)
            one.publish(parts(version(2), 0), version=2)
            with pytest.raises(Timeout):
                receiver.stage(version=2, timeout=0.5)
            staged = receiver.stage(version=1, timeout=20).apply()
            assert not staged.way.is_whole
            check(weights, 1)
            other.publish(parts(version(2), 1), version=2)
            publish(3)
            again = receiver.stage(timeout=20)
            staged = receiver.stage(timeout=20).apply()
            assert (staged.version, receiver.version) == (3, 3)
            check(weights, 3)
            with pytest.raises(InputError, match="staged over another version"):
                again.apply()
            until(lambda: one.status()["readers"][0]["version"] == 3)
            with pytest.raises(InputError, match="without any"):
                receiver.stage(version=3, timeout=20).apply(weights)


def test_one_of_two_threads_applies_to_a_shard() -> None:
    """Versions 1 and 2 over version 0 at once: the later one would be over the wrong base."""
    weights = loaded(5)
    with Publisher("127.0.0.1:0") as one, Publisher("127.0.0.1:0") as other:
        publishers = (one, other)
        addresses = [each.address for each in publishers]
        with (
            ShardReceiver(addresses, weights, layout()) as receiver,
            ThreadPoolExecutor(2) as threads,
        ):
            staged = []
            for number in range(3):
                for rank, publisher in enumerate(publishers):
                    publisher.publish(parts(version(number), rank), version=number)
                staged.append(receiver.stage(timeout=20).verify())
                if number == 0:
                    staged.pop().apply()
            with receiver._weights._busy:
                applied = [threads.submit(each.apply) for each in staged]
                wait(applied, 0.2)
            assert sorted(each.exception() is None for each in applied) == [False, True]
            assert receiver.version is not None
            check(weights, receiver.version)


def test_a_layout_that_nobody_serves() -> None:
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish(parts(version(0), 0))
        with ShardReceiver([publisher.address], loaded(0), layout()) as receiver:
            staged = receiver.stage(timeout=20)
            with pytest.raises(DataError):
                staged.verify()
    with pytest.raises(InputError, match="no publisher"):
        ShardReceiver([], loaded(0), layout())
    with pytest.raises(InputError, match="no valid port"):
        ShardReceiver(["host:x"], loaded(0), layout())
