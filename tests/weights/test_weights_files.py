"""Deltas of versions on disk: the new version comes back byte for byte, or an error says why."""

from __future__ import annotations

import errno
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn
from numpy.typing import NDArray

from sparsewire._core import DELTA_CHUNK, apply_delta, encode_delta, is_delta
from sparsewire.errors import DataError, MismatchError
from sparsewire.tools.cli.main import app
from sparsewire.weights import files
from sparsewire.weights.versions.coding import checksum
from sparsewire.weights.versions.message import Delta, read
from sparsewire.weights.versions.safetensors import HEADER_MAX
from sparsewire.weights.versions.snapshot import Snapshot

Arrays = dict[str, tuple[str, NDArray[Any]]]
"""Tensors by name: the dtype, and an array of that many bytes an element."""


def written(path: Path, tensors: Arrays, **metadata: str) -> Path:
    """A file of safetensors, by the format's own words."""
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, (dtype, array) in tensors.items():
        begin, end = end, end + array.nbytes
        entries[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [begin, end]}
    header = json.dumps(entries).encode()
    data = b"".join(array.tobytes() for _, array in tensors.values())
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


def model(seed: int = 0) -> Arrays:
    random = np.random.default_rng(seed)
    return {
        "large": ("BF16", random.integers(0, 2**16, (1100, 1000), dtype=np.uint16)),
        "small": ("F32", random.standard_normal(7).astype(np.float32)),
        "table": ("I8", random.integers(-9, 9, (64, 3), dtype=np.int8)),
        "empty": ("F16", np.zeros((0, 4), np.float16)),
        "scalar": ("F64", np.array(3.5)),
    }


def moved(tensors: Arrays) -> Arrays:
    """The next version: few elements of `large` and `table` change by one."""
    new = {name: (dtype, array.copy()) for name, (dtype, array) in tensors.items()}
    new["large"][1].reshape(-1)[::97] += 1
    new["table"][1][5] += 1
    return new


def made(old: Path, new: Path, delta: Path) -> Delta:
    return files.diff(Snapshot(old), Snapshot(new), "2", "1", delta, lambda nbytes: None)


def applied(base: Path, delta: Delta, target: Path) -> Path:
    files.apply(Snapshot(base), delta, target, lambda nbytes: None)
    return target


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["weights", *map(str, arguments)])


bits = hn.arrays(np.uint16, st.integers(0, 300), elements=st.integers(0, 2**16 - 1))


@given(bits, st.data(), st.booleans())
def test_bits_come_back(base: NDArray[np.uint16], data: st.DataObject, floating: bool) -> None:
    kept = data.draw(hn.arrays(np.bool_, base.shape))
    fresh = np.where(kept, base, data.draw(hn.arrays(np.uint16, base.shape))).astype(np.uint16)
    code, changed = encode_delta(base, fresh, 2, floating)
    assert changed == (base != fresh).sum()
    assert is_delta(code, len(base), 2, floating)
    assert apply_delta(code, base, 2, floating)
    assert (base == fresh).all()


@given(st.binary(max_size=64), st.integers(0, 40), st.sampled_from([1, 2, 4, 8]))
def test_other_bytes_change_nothing(code: bytes, count: int, width: int) -> None:
    chunk = np.arange(count * width, dtype=np.uint8)
    before = chunk.copy()
    assert apply_delta(code, chunk, width, True) == is_delta(code, count, width, True)
    assert is_delta(code, count, width, True) or (chunk == before).all()


def test_what_is_no_chunk() -> None:
    for width in (0, 3, 16):
        with pytest.raises(ValueError, match="1, 2, 4 or 8"):
            encode_delta(b"", b"", width, True)
    with pytest.raises(ValueError, match="same size"):
        encode_delta(b"ab", b"abcd", 2, True)
    with pytest.raises(ValueError, match="whole elements"):
        encode_delta(b"abc", b"abc", 2, True)
    with pytest.raises(ValueError, match="DELTA_CHUNK"):
        is_delta(b"", DELTA_CHUNK + 1, 2, True)
    with pytest.raises(BufferError):
        apply_delta(b"\0", b"ab", 2, True)


def test_a_file_comes_back(tmp_path: Path) -> None:
    old = written(tmp_path / "old", model())
    new = written(tmp_path / "new", moved(model()), format="pt")
    delta = made(old, new, tmp_path / "delta")
    assert set(delta.tensors) == {"large", "table"}
    assert delta.tensors["large"].changed == -(-1_100_000 // 97)
    assert delta.nbytes < 1.6 * delta.tensors["large"].changed
    assert applied(old, delta, tmp_path / "made").read_bytes() == new.read_bytes()
    # Over the base itself, too.
    assert applied(old, delta, old).read_bytes() == new.read_bytes()


def test_a_directory_comes_back(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, tensors in ((old, model()), (new, moved(model()))):
        folder.mkdir()
        parts = [dict(list(tensors.items())[:2]), dict(list(tensors.items())[2:])]
        for number, part in enumerate(parts):
            written(folder / f"model-{number}.safetensors", part)
    for folder, index in ((old, "1"), (new, "2")):
        (folder / "model.index.json").write_text(index)
    (old / "tokenizer.txt").write_text("words")
    made_ = applied(old, made(old, new, tmp_path / "delta"), tmp_path / "made")
    for file in new.iterdir():
        assert (made_ / file.name).read_bytes() == file.read_bytes()
    assert (made_ / "tokenizer.txt").read_text() == "words"
    assert made_.stat().st_mode == old.stat().st_mode
    with pytest.raises(DataError, match="inside of the base"):
        applied(old, made(old, new, tmp_path / "delta"), old / "made")
    with pytest.raises(DataError, match="there already"):
        applied(old, made(old, new, tmp_path / "delta"), tmp_path / "made")


def test_tensors_come_and_go(tmp_path: Path) -> None:
    tensors = moved(model())
    del tensors["small"]
    tensors["added"] = ("U8", np.arange(9, dtype=np.uint8))
    tensors["zeros"] = ("F32", np.zeros(4, np.float32))
    old, new = written(tmp_path / "old", model()), written(tmp_path / "new", tensors)
    delta = made(old, new, tmp_path / "delta")
    assert delta.removed == ["small"]
    assert applied(old, delta, tmp_path / "made").read_bytes() == new.read_bytes()


def test_another_base_is_refused(tmp_path: Path) -> None:
    old, new = written(tmp_path / "old", model()), written(tmp_path / "new", moved(model()))
    delta = made(old, new, tmp_path / "delta")
    other = written(tmp_path / "other", model(1))
    for base in (new, other):
        with pytest.raises(MismatchError, match="not the base of this delta, version '1'"):
            applied(base, delta, tmp_path / "made")
    less = model()
    del less["small"]
    with pytest.raises(MismatchError, match=r"its fingerprint is [0-9a-f]{32}, and"):
        applied(written(tmp_path / "less", less), delta, tmp_path / "made")
    assert not (tmp_path / "made").exists()
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "delta",
        "less",
        "new",
        "old",
        "other",
    ]


def test_a_shape_that_changes_is_named(tmp_path: Path) -> None:
    tensors = model()
    tensors["small"] = ("F32", np.zeros((1, 7), np.float32))
    old, new = written(tmp_path / "old", model()), written(tmp_path / "new", tensors)
    with pytest.raises(MismatchError, match=r"small has dtype F32 and shape \[7\] .* \[1, 7\]"):
        made(old, new, tmp_path / "delta")


def test_damaged_deltas_are_refused(tmp_path: Path) -> None:
    old, new = written(tmp_path / "old", model()), written(tmp_path / "new", moved(model()))
    made(old, new, tmp_path / "delta")
    whole = (tmp_path / "delta").read_bytes()
    random = np.random.default_rng(0)
    broken = tmp_path / "broken"
    for _ in range(50):
        damaged = bytearray(whole)
        damaged[random.integers(len(whole))] ^= 1 << random.integers(8)
        broken.write_bytes(damaged)
        with pytest.raises(DataError):
            read(broken)
    for size in (0, 3, 15, 16, 40, len(whole) - 1):
        broken.write_bytes(whole[:size])
        with pytest.raises(DataError):
            read(broken)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda raw: raw[:4], "too short"),
        (lambda raw: (2**40).to_bytes(8, "little") + raw[8:], "no header"),
        (lambda raw: raw[:-1], "may be cut off"),
        (lambda raw: raw.replace(b'"F32"', b'"F99"'), "dtype 'F99' is not known"),
        (lambda raw: raw.replace(b'"shape": [7]', b'"shape": [8]'), "does not fit"),
        (lambda raw: raw.replace(b"{", b"[", 1), "no header"),
    ],
)
def test_what_is_no_file_of_safetensors(tmp_path: Path, change: Any, words: str) -> None:
    path = written(tmp_path / "file", model())
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=words):
        Snapshot(path)


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = written(tmp_path / "old", model()), written(tmp_path / "new", moved(model()))
    delta = made(old, new, tmp_path / "delta")
    before = sorted(tmp_path.iterdir()), old.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        applied(old, delta, old)
    assert (sorted(tmp_path.iterdir()), old.read_bytes()) == before


LARGE = {"dtype": "F32", "shape": [10**30], "data_offsets": [0, 4 * 10**30]}


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["tensors"][0].__setitem__(0, "zz"),
        lambda document: document["tensors"][0].__setitem__(2, float("inf")),
        lambda document: document["tensors"][0].__setitem__(2, 10**400),
        lambda document: document["tensors"][0].__setitem__(2, -5),
        lambda document: document["tensors"][0].__setitem__(1, "00"),
        lambda document: document["tensors"][0].__setitem__(4, [10**400]),
        lambda document: document["tensors"][0].__setitem__(4, [-1, 1]),
        lambda document: document["tensors"].append(document["tensors"][0]),
        lambda document: document.update(base=""),
        lambda document: document.update(aliases={"large": "small"}),
        lambda document: document.update(aliases={"other": "none"}),
        lambda document: document.update(version="\ud800"),
        lambda document: document.update(texts={"../x": ""}),
        lambda document: document.update(texts={"new": ""}),
        lambda document: document.update(texts={"other": 2 * HEADER_MAX * " "}),
        lambda document: document.update(headers={"new": "[]"}),
        lambda document: document.update(headers={"new": header_of({"a": LARGE})}),
        lambda document: document.update(
            headers={"new": header_of({"a": {**LARGE, "shape": [99] * 10**6}})}
        ),
        lambda document: document.pop("removed"),
    ],
)
def test_crafted_deltas_are_refused(tmp_path: Path, change: Any) -> None:
    old, new = written(tmp_path / "old", model()), written(tmp_path / "new", moved(model()))
    made(old, new, tmp_path / "delta")
    whole = (tmp_path / "delta").read_bytes()
    begin = len(whole) - 24 - int.from_bytes(whole[-24:-16], "little")
    document = json.loads(zlib.decompress(whole[begin:-24]))
    change(document)
    packed = zlib.compress(json.dumps(document).encode())
    crafted = whole[:begin] + packed + len(packed).to_bytes(8, "little")
    (tmp_path / "crafted").write_bytes(crafted + checksum(crafted))
    for command in (("show",), ("apply", old)):
        output = [] if command == ("show",) else ["-o", tmp_path / "made"]
        told = invoke(*command, tmp_path / "crafted", *output)
        assert told.exit_code == 1, told.output
        assert told.output.startswith("error: ")
    assert not (tmp_path / "made").exists()


def header_of(entries: dict[str, Any]) -> str:
    return json.dumps(entries)


def test_the_commands(tmp_path: Path) -> None:
    old, new = written(tmp_path / "old", model()), written(tmp_path / "new", moved(model()))
    told = invoke("diff", old, new, "-o", tmp_path / "delta")
    assert told.exit_code == 0, told.output
    assert "old -> new: 2 tensors changed, 3 did not. 11,344 elements in" in told.output
    told = invoke("show", tmp_path / "delta")
    assert "large" in told.output
    assert "1.03%" in told.output
    assert invoke("apply", old, tmp_path / "delta", "-o", tmp_path / "made").exit_code == 0
    assert (tmp_path / "made").read_bytes() == new.read_bytes()
    told = invoke("apply", new, tmp_path / "delta", "-o", tmp_path / "more")
    assert told.exit_code == 1
    assert "error: " in told.output
    assert invoke("diff", old, tmp_path, "-o", tmp_path / "none").exit_code == 1
    assert invoke("diff", old, new, "-o", new).exit_code == 1
    assert invoke("show", new).exit_code == 1


def test_the_library_reads_what_comes_out(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.int64)}
    library.save_file(tensors, tmp_path / "old")
    tensors["a"][1, 2] = np.nan
    library.save_file(tensors, tmp_path / "new", metadata={"step": "2"})
    delta = made(tmp_path / "old", tmp_path / "new", tmp_path / "delta")
    made_ = library.load_file(applied(tmp_path / "old", delta, tmp_path / "made"))
    assert all(np.array_equal(made_[name], tensors[name], equal_nan=True) for name in tensors)
