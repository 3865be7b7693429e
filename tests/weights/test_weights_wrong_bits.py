"""What may not end in other bits than the publisher's: an interrupted publisher, tied tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sparsewire.errors import InputError, MismatchError
from sparsewire.weights import Publisher, Receiver, as_numpy

LIMIT_S = 10.0


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["_announce", "_history.follow"])
@pytest.mark.parametrize("is_stored", [False, True])
def test_a_version_that_was_interrupted_spoils_none_after_it(
    tmp_path: Path, is_stored: bool, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.arange(1000, dtype=np.float32)
    directory = tmp_path if is_stored else None
    with (
        Publisher("127.0.0.1:0", directory=directory) as publisher,
        Receiver(publisher.address) as reader,
    ):
        publisher.publish({"a": values})
        reader.stage(timeout=LIMIT_S).apply()
        values[3] += 1
        with monkeypatch.context() as patched:
            owner = publisher._history if "." in step else publisher
            patched.setattr(owner, step.rpartition(".")[2], interrupted)
            with pytest.raises(KeyboardInterrupt):
                publisher.publish({"a": values})
        values[9] += 1
        publisher.publish({"a": values}, version=5)
        reader.stage(timeout=LIMIT_S).apply()
        np.testing.assert_array_equal(as_numpy(reader.tensors["a"]), values)
    with Publisher("127.0.0.1:0", directory=directory) as publisher:
        assert publisher.version == (5 if is_stored else None)


def test_a_reader_that_ties_what_the_publisher_does_not_is_told() -> None:
    torch = pytest.importorskip("torch")
    table = torch.zeros(4, 2)
    with (
        Publisher("127.0.0.1:0") as publisher,
        Receiver(publisher.address, {"table": table, "head": table}) as reader,
    ):
        publisher.publish({"table": torch.zeros(4, 2), "head": torch.zeros(4, 2)})
        reader.stage(timeout=LIMIT_S).apply()
        publisher.publish({"table": torch.ones(4, 2), "head": torch.zeros(4, 2)})
        with pytest.raises(MismatchError, match="one tensor here"):
            reader.stage(timeout=LIMIT_S).apply()
        assert not table.any()


def test_a_model_whose_tensors_were_replaced_is_not_left_behind() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2)
    with Publisher("127.0.0.1:0") as publisher, Receiver(publisher.address, model) as reader:
        publisher.publish(torch.nn.Linear(3, 2))
        reader.stage(timeout=LIMIT_S).apply()
        model.double().float()
        publisher.publish(torch.nn.Linear(3, 2))
        with pytest.raises(InputError, match="another tensor in the model"):
            reader.stage(timeout=LIMIT_S).apply()
        assert reader.version == 0


def test_a_mapping_whose_tensors_were_replaced_is_not_left_behind() -> None:
    own = {"a": np.zeros(4, np.float32)}
    with Publisher("127.0.0.1:0") as publisher, Receiver(publisher.address, own) as reader:
        publisher.publish({"a": np.ones(4, np.float32), "b": np.ones(2, np.float32)})
        reader.stage(timeout=LIMIT_S).apply()
        publisher.publish({"a": np.zeros(4, np.float32), "b": np.zeros(2, np.float32)})
        reader.stage(timeout=LIMIT_S).apply()
        own["a"] = own["a"].copy()
        publisher.publish({"a": np.ones(4, np.float32), "b": np.ones(2, np.float32)})
        with pytest.raises(InputError, match="another tensor in the mapping"):
            reader.stage(timeout=LIMIT_S).verify()


@pytest.mark.parametrize("other", [np.zeros(3, np.float32), np.zeros(4, np.int32)])
def test_a_model_of_other_tensors_is_refused_where_nothing_changed(
    other: NDArray[Any],
) -> None:
    own = {"a": np.ones(4, np.float32)}
    with Publisher("127.0.0.1:0") as publisher, Receiver(publisher.address, own) as reader:
        publisher.publish(own)
        staged = reader.stage(timeout=LIMIT_S)
        with pytest.raises(MismatchError, match="a has dtype"):
            staged.apply({"a": other})
        assert reader.version is None
        assert not other.any()
