"""Reading LIBSVM files, making two classes of many, and dividing rows among ranks."""

from __future__ import annotations

import bz2
import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from sparsewire.errors import DataError, OptimizeError
from sparsewire.tools.optimize.problems.examples import Examples, positive_classes, share, signs
from sparsewire.tools.optimize.task import load
from sparsewire.tools.optimize.train.run import split
from sparsewire.tools.optimize.train.training import Training


def test_classes_of_a_file_become_labels(data: Path) -> None:
    features, labels = load_svmlight_file(str(data))
    found = load(Training(str(data)))
    np.testing.assert_array_equal(found.examples.features.toarray(), features.toarray())
    np.testing.assert_array_equal(found.examples.labels, labels)
    assert (found.name, found.positive) == ("made.libsvm", [1.0])


@pytest.mark.parametrize(("ending", "opener"), [(".gz", gzip.open), (".bz2", bz2.open)])
def test_packed_files_read_like_plain_ones(
    data: Path, ending: str, opener: Callable[..., object]
) -> None:
    packed = data.with_suffix(ending)
    with data.open("rb") as source, opener(packed, "wb") as target:
        shutil.copyfileobj(source, target)
    plain = load(Training(str(data))).examples
    assert load(Training(str(packed))).examples.fingerprint() == plain.fingerprint()


def test_fingerprints_tell_examples_apart(data: Path) -> None:
    examples = load(Training(str(data))).examples
    turned = np.arange(len(examples.labels))[::-1]
    others = [
        examples.select(turned),
        examples.select(turned[1:]),
        Examples(examples.features * 2, examples.labels),
        Examples(examples.features, -examples.labels),
        Examples(examples.features.toarray(), examples.labels),
    ]
    fingerprints = {
        each.fingerprint() for each in (examples, examples.select(slice(None)), *others)
    }
    assert len(fingerprints) == 1 + len(others)


def test_normalized_rows_have_length_1(data: Path) -> None:
    rows = load(Training(str(data), normalize=True)).examples.features
    lengths = np.sqrt(rows.power(2).sum(axis=1))
    np.testing.assert_allclose(lengths[lengths > 0], 1.0)


@pytest.mark.parametrize(
    ("classes", "wanted", "positive"),
    [
        ([-1, 1], None, [1]),
        ([0, 1], None, [1]),
        ([2, 1], None, [2]),
        ([1, 2], "1", [1]),
        (range(1, 21), None, range(11, 21)),
        ([1, 2, 3], None, [2, 3]),
        ([1, 2, 3], "3, 1", [1, 3]),
    ],
)
def test_classes_become_two(classes: list[float], wanted: str | None, positive: object) -> None:
    labels = np.array([*classes, *classes], np.float64)
    chosen = positive_classes(labels, wanted)
    assert chosen.tolist() == list(positive)  # type: ignore[call-overload]
    expected = [1.0 if label in chosen else -1.0 for label in labels]
    assert signs(labels, chosen).tolist() == expected


@pytest.mark.parametrize(
    ("labels", "wanted", "message"),
    [
        ([1, 1], None, "all rows have the label 1"),
        ([1, 2], "3", r"--positive 3: no such class; there are 1, 2"),
        ([1, 2], "1,2", "leave at least one out"),
        ([1, 2], "one", "write for example 1,2,5"),
        (range(2000), None, "no classification"),
    ],
)
def test_labels_without_two_classes_are_refused(
    labels: list[float], wanted: str | None, message: str
) -> None:
    with pytest.raises(OptimizeError, match=message):
        positive_classes(np.array(labels, np.float64), wanted)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no rows with features"),
        (b"1\n-1\n", "has no rows with features"),
        (b"hello world\n", "is no LIBSVM file"),
        (b"1 3:1 2:1\n-1 1:1\n", "is no LIBSVM file"),
        (b"1 1:nan\n-1 1:1\n", "not finite"),
        (b"inf 1:2\n-1 1:1\n", "not finite"),
        (b"\x00\xff\xfe\x80" * 50, "is no LIBSVM file"),
    ],
)
def test_files_that_are_no_data_sets_are_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "bad"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load(Training(str(file)))


@pytest.mark.parametrize("ending", ["bz2", "gz"])
def test_broken_archive_is_refused(data: Path, ending: str) -> None:
    packed = data.with_suffix(f".{ending}")
    module = {"bz2": bz2, "gz": gzip}[ending]
    packed.write_bytes(module.compress(data.read_bytes())[:-100])
    with pytest.raises(DataError, match="is no LIBSVM file"):
        load(Training(str(packed)))


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptimizeError, match=r"cannot read .*no such file"):
        load(Training(str(tmp_path / "missing")))
    with pytest.raises(DataError, match=r"cannot read .*directory"):
        load(Training(str(tmp_path)))


@given(count=st.integers(0, 200), world_size=st.integers(1, 17))
def test_shares_are_even_and_hold_everything_once(count: int, world_size: int) -> None:
    parts = [range(count)[share(count, rank, world_size)] for rank in range(world_size)]
    assert [item for part in parts for item in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_split_depends_on_the_seed_alone() -> None:
    training, test = split(300, 0.25, seed=3)
    assert (len(training), len(test)) == (225, 75)
    assert sorted([*training, *test]) == list(range(300))
    again, _ = split(300, 0.25, seed=3)
    other, _ = split(300, 0.25, seed=4)
    assert training.tolist() == again.tolist() != other.tolist()


def test_split_must_leave_something_to_train_on() -> None:
    with pytest.raises(OptimizeError, match="leaves nothing"):
        split(4, 0.99, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "--epochs"),
        ({"test_share": 1.0}, "--test-share"),
        ({"l2": -1.0}, "--l2"),
        ({"l2": float("nan")}, "--l2"),
        ({"step": 0.0}, "--step"),
        ({"batch": 0}, "--batch"),
        ({"model": "tree"}, "use one of logistic, svm"),
        ({"method": "adam"}, "use one of sgd, bcd"),
        ({"method": "bcd", "batch": 3}, "--batch is no option of --method bcd; it has --block"),
        ({"block": 3}, "--block is no option of --method sgd"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptimizeError, match=message):
        Training("data", **options)  # type: ignore[arg-type]
