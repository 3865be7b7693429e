"""What is no weights, no name and no setting: refused at once, with words on what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsewire.errors import InputError
from sparsewire.weights import Publisher, Receiver, ShardReceiver, as_numpy

LIMIT_S = 10.0
VALUES = np.arange(4, dtype=np.float32)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher("127.0.0.1:0") as found:
        yield found


def meta() -> Any:
    torch = pytest.importorskip("torch")
    return torch.empty(3, device="meta")


def sparse() -> Any:
    torch = pytest.importorskip("torch")
    return torch.eye(3).to_sparse()


def test_big_endian_arrays_keep_their_values(publisher: Publisher) -> None:
    publisher.publish({"a": VALUES.astype(">f4")})
    with Receiver(publisher.address) as reader:
        reader.stage(timeout=LIMIT_S).apply()
        np.testing.assert_array_equal(as_numpy(reader.tensors["a"]), VALUES)


def test_big_endian_arrays_are_no_base(publisher: Publisher) -> None:
    with pytest.raises(InputError, match="cannot be written in place"):
        Receiver(publisher.address, {"a": VALUES.astype(">f4")})


@pytest.mark.parametrize("make", [meta, sparse])
def test_tensors_without_dense_values_are_refused(publisher: Publisher, make: Any) -> None:
    with pytest.raises(InputError, match=r"^a is on the device"):
        publisher.publish({"a": make()})
    with pytest.raises(InputError, match=r"^a is on the device"):
        Receiver(publisher.address, {"a": make()})


@pytest.mark.parametrize("name", ["a\udcff", "__metadata__", 5])
def test_names_that_no_file_can_have_are_refused(publisher: Publisher, name: Any) -> None:
    with pytest.raises(InputError, match="is no name"):
        publisher.publish({name: VALUES})
    with pytest.raises(InputError, match="is no name"):
        Receiver(publisher.address, {name: VALUES.copy()})


@pytest.mark.parametrize("value", [5, [1.0]])
def test_values_that_are_no_arrays_are_no_base(publisher: Publisher, value: Any) -> None:
    with pytest.raises(InputError, match="cannot be written in place"):
        Receiver(publisher.address, {"a": value})


def test_an_iterator_that_is_used_up_does_not_take_away_all_tensors(publisher: Publisher) -> None:
    pairs = iter([("a", VALUES)])
    publisher.publish(pairs)
    with pytest.raises(InputError, match="used up"):
        publisher.publish(pairs)
    assert publisher.version == 0


@pytest.mark.parametrize("version", ["3", True, -1, 3.0, np.int64(3)])
def test_versions_that_are_no_numbers_are_refused_at_once(
    publisher: Publisher, version: Any
) -> None:
    with pytest.raises(InputError, match="is no number from"):
        publisher.publish({"a": VALUES}, version)
    with (
        Receiver(publisher.address) as reader,
        pytest.raises(InputError, match="is no number from"),
    ):
        reader.stage(version, timeout=LIMIT_S)


@pytest.mark.parametrize(
    "setting",
    [
        {"name": "a\nb"},
        {"name": "a" * 201},
        {"name": 5},
        {"site": 3},
        {"mbits": float("nan")},
        {"mbits": -1},
        {"mbits": "fast"},
        {"threads": -1},
    ],
)
def test_settings_that_a_publisher_would_refuse_are_refused_at_once(
    publisher: Publisher, setting: dict[str, Any]
) -> None:
    with pytest.raises(InputError):
        Receiver(publisher.address, **setting)


def test_a_shards_reader_refuses_such_names_too(publisher: Publisher) -> None:
    from sparsewire.weights import Layout

    with pytest.raises(InputError, match="name"):
        ShardReceiver([publisher.address], {}, Layout({}), name="a\nb")


def test_a_wrong_number_of_threads_leaves_the_directory_free(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="threads"):
        Publisher("127.0.0.1:0", directory=tmp_path, threads=-1)
    Publisher("127.0.0.1:0", directory=tmp_path).close()


@pytest.mark.parametrize("timeout", ["5", -1, float("nan")])
def test_times_that_are_none_are_refused(publisher: Publisher, timeout: Any) -> None:
    with Receiver(publisher.address) as reader, pytest.raises(InputError, match="seconds"):
        reader.stage(timeout=timeout)


def test_a_base_that_is_not_there_is_no_base(publisher: Publisher, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Receiver(publisher.address, tmp_path / "none")
