"""Directories of slime, miles and ModelExpress: what a plain reader and writer of their format make
and take is what the library takes and makes."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn
from numpy.typing import NDArray
from plain_directories import (
    SUMS,
    applied,
    coded,
    data_of,
    decoded,
    directory,
    header_and_tensors,
    invoke,
    model,
    moved,
    stored,
    tensors_of,
    zstandard,
)

from sparsewire.errors import DataError
from sparsewire.weights.directories.changes import Encoding, encode, patch
from sparsewire.weights.directories.index import NAME
from sparsewire.weights.directories.mark import version_of
from sparsewire.weights.directories.writing import Dialect, write
from sparsewire.weights.versions.snapshot import Snapshot

CASES = [
    (Dialect.SLIME, Encoding.XOR, "xxh3-128", ("000007", "000006")),
    (Dialect.SLIME, Encoding.OVERWRITE, "xxh3-128", ("000007", "000006")),
    (Dialect.MODELEXPRESS, Encoding.XOR, "adler32", ("v7", "v6")),
]


@pytest.mark.parametrize(("dialect", "encoding", "sums", "names"), CASES)
def test_a_plain_reader_takes_what_is_written(
    tmp_path: Path, dialect: Dialect, encoding: Encoding, sums: str, names: tuple[str, str]
) -> None:
    before, after = model(), moved(model())
    old, new = directory(tmp_path / "old", before), directory(tmp_path / "new", after)
    delta, progress = tmp_path / "delta", list[int]()
    written = write(
        Snapshot(old),
        Snapshot(new),
        delta,
        names,
        dialect=dialect,
        encoding=encoding,
        move=progress.append,
    )
    assert (written.tensors, written.changed, sum(progress)) == (3, 3, 4212)
    index = json.loads((delta / NAME).read_text())
    assert index["metadata"] == {
        "version": names[0],
        "base_version": names[1],
        "delta_encoding": encoding.value,
        "compression_format": "zstd",
        "checksum_format": sums,
    }
    file = "model-00000-of-00001.safetensors"
    assert index["weight_map"] == dict.fromkeys(("wide", "packed", "scalar"), file)
    assert sorted(path.name for path in delta.iterdir()) == [file, NAME]
    header, codes = header_and_tensors(delta / file)
    fresh = data_of(after)
    assert header["__metadata__"] == {name: SUMS[sums](fresh[name]) for name in codes}
    for name, code in codes.items():
        assert (header[name]["dtype"], header[name]["shape"]) == ("U8", [len(code)])
        assert decoded(encoding.value, data_of(before)[name], code) == fresh[name]


@pytest.mark.parametrize(
    "how",
    [
        {"files": 2},
        {"encoding": "overwrite"},
        # As miles writes them, and ModelExpress.
        {"version": 1, "base_version": 0, "sums": "adler32"},
        {"version": "v1", "base_version": "v0", "sums": "adler32"},
    ],
)
def test_what_a_plain_writer_makes_is_applied(tmp_path: Path, how: dict[str, Any]) -> None:
    before, after = model(), moved(model())
    old = directory(tmp_path / "old", before)
    (old / "tokenizer").mkdir()
    (old / "tokenizer" / "words.txt").write_text("words")
    delta = stored(tmp_path / "delta", data_of(before), data_of(after), **how)
    made = applied(old, [delta], tmp_path / "made")
    assert tensors_of(made) == data_of(after)
    assert (made / "config.json").read_text() == "{}"
    assert (made / "tokenizer" / "words.txt").read_text() == "words"
    assert version_of(made) == str(how.get("version", "000001"))
    assert tensors_of(old) == data_of(before)


def test_checksums_of_blake3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blake3 = pytest.importorskip("blake3")
    monkeypatch.setitem(SUMS, "blake3", lambda data: str(blake3.blake3(data).hexdigest()))
    before, after = model(), moved(model())
    old = directory(tmp_path / "old", before)
    delta = stored(tmp_path / "delta", data_of(before), data_of(after), sums="blake3")
    assert tensors_of(applied(old, [delta], tmp_path / "made")) == data_of(after)


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors")
    old, new = directory(tmp_path / "old", model()), directory(tmp_path / "new", moved(model()))
    write(Snapshot(old), Snapshot(new), tmp_path / "delta", ("1", "0"), dialect=Dialect.SLIME)
    (file,) = (tmp_path / "delta").glob("*.safetensors")
    with library.safe_open(file, "np") as shard:
        assert set(shard.keys()) == set(shard.metadata()) == {"wide", "packed", "scalar"}
        assert shard.get_tensor("wide").dtype == np.uint8


bytes_ = hn.arrays(np.uint8, st.integers(0, 300), elements=st.integers(0, 255))


@given(bytes_, st.data(), st.sampled_from(Encoding))
def test_changes_come_back(
    base: NDArray[np.uint8], data: st.DataObject, encoding: Encoding
) -> None:
    kept = data.draw(hn.arrays(np.bool_, base.shape))
    fresh = np.where(kept, base, data.draw(hn.arrays(np.uint8, base.shape))).astype(np.uint8)
    change = encode(encoding, base, fresh)
    assert change.changed == (base != fresh).sum()
    assert decoded(encoding.value, base.tobytes(), change.code) == fresh.tobytes()
    code = coded(encoding.value, base.tobytes(), fresh.tobytes())
    for each in (change.code, code):
        target = base.copy()
        patch(encoding, np.frombuffer(each, np.uint8), target)
        assert (target == fresh).all()


@given(st.binary(max_size=80), st.booleans(), st.integers(1, 40), st.sampled_from(Encoding))
def test_other_bytes_are_refused_or_fit(
    plain: bytes, is_frame: bool, size: int, encoding: Encoding
) -> None:
    code = zstandard.ZstdCompressor().compress(plain) if is_frame else plain
    target = np.zeros(size, np.uint8)
    try:
        patch(encoding, np.frombuffer(code, np.uint8), target)
    except DataError:
        return
    assert decoded(encoding.value, bytes(size), code) == target.tobytes()


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("head", [b"", struct.pack("<I", 2**32 - 1)])
def test_a_bomb_takes_no_memory(encoding: Encoding, head: bytes) -> None:
    bomb = zstandard.ZstdCompressor(level=1).compress(head + bytes(1 << 29))
    assert len(bomb) < 1 << 17
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"longer than|overwrites"):
            patch(encoding, np.frombuffer(bomb, np.uint8), np.zeros(1000, np.uint8))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("positions", [[1000], [0, 1, 2**32 - 1]])
def test_positions_outside_are_refused(positions: list[int]) -> None:
    plain = struct.pack(f"<I{len(positions)}I", len(positions), *positions) + bytes(len(positions))
    code = np.frombuffer(zstandard.ZstdCompressor().compress(plain), np.uint8)
    with pytest.raises(DataError, match="overwrites byte"):
        patch(Encoding.OVERWRITE, code, np.zeros(1000, np.uint8))


def test_the_commands(tmp_path: Path) -> None:
    before, after = model(), moved(model())
    old, new = directory(tmp_path / "old", before), directory(tmp_path / "new", after)
    (new / "config.json").write_text('{"a": 1}')
    delta = tmp_path / "weight_v000005"
    told = invoke("diff", old, new, "-o", delta, "--format", "slime", "--encoding", "overwrite")
    assert told.exit_code == 0, told.output
    assert "000004 -> 000005: 3 tensors changed. 3 bytes in" in told.output
    assert "note: the format stores tensors only, and these differ: config.json" in told.output
    told = invoke("show", delta)
    assert "of overwrite and zstd; checksums are xxh3-128" in told.output
    assert "wide" in told.output
    assert invoke("apply", old, delta, "-o", tmp_path / "made").exit_code == 0
    assert tensors_of(tmp_path / "made") == data_of(after)
    told = invoke("apply", tmp_path / "made", delta, "-o", tmp_path / "more")
    assert told.exit_code == 1
    assert "has version 000005 already" in told.output
    # The base says its version, and the next is one more.
    told = invoke("diff", tmp_path / "made", new, "-o", tmp_path / "next", "--format", "slime")
    assert "000005 -> 000006: 0 tensors changed" in told.output
    assert invoke("apply", tmp_path / "made", tmp_path / "next", "-o", old).exit_code == 1
    assert invoke("apply", tmp_path / "made", tmp_path, "-o", tmp_path / "six").exit_code == 0
    assert version_of(tmp_path / "six") == "000006"
    told = invoke("show", tmp_path)
    assert "weight_v000005" in told.output
    assert "next" in told.output
    told = invoke("diff", old, new, "-o", tmp_path / "mx", "--format", "modelexpress")
    assert "old -> new: 3 tensors changed" in told.output
