"""Directories of slime, miles and ModelExpress: what a plain reader and writer of their format,
written here by its own words, make and take is what the library takes and makes."""

from __future__ import annotations

import errno
import json
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn
from numpy.typing import NDArray

from sparsewire.errors import DataError, MismatchError
from sparsewire.tools.cli.main import app
from sparsewire.weights.directories import applying
from sparsewire.weights.directories.changes import Encoding, encode, patch
from sparsewire.weights.directories.index import NAME
from sparsewire.weights.directories.mark import version_of
from sparsewire.weights.directories.stored import StoredVersion
from sparsewire.weights.directories.writing import Dialect, write
from sparsewire.weights.versions.snapshot import Snapshot

zstandard = pytest.importorskip("zstandard")
xxhash = pytest.importorskip("xxhash")

Model = dict[str, tuple[str, list[int], bytes]]
"""Tensors by name: dtype, shape and bytes."""
Header = dict[str, Any]


def safetensors(path: Path, tensors: Model, metadata: Any = None) -> Path:
    entries: Header = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name, (dtype, shape, data) in tensors.items():
        begin, end = end, end + len(data)
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(entries).encode()
    data = b"".join(data for *_, data in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def header_and_tensors(path: Path) -> tuple[Header, dict[str, bytes]]:
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    spans = {name: each["data_offsets"] for name, each in header.items() if name[0] != "_"}
    data = whole[8 + length :]
    return header, {name: data[begin:end] for name, (begin, end) in spans.items()}


def tensors_of(folder: Path) -> dict[str, bytes]:
    return {
        name: data
        for path in sorted(folder.glob("*.safetensors"))
        for name, data in header_and_tensors(path)[1].items()
    }


SUMS: dict[str, Callable[[bytes], str]] = {
    "xxh3-128": lambda data: str(xxhash.xxh3_128_hexdigest(data)),
    "adler32": lambda data: f"{zlib.adler32(data):08x}",
}


def coded(encoding: str, old: bytes, new: bytes) -> bytes:
    """The format's own words, byte by byte."""
    if encoding == "xor":
        plain = bytes(a ^ b for a, b in zip(old, new, strict=True))
    else:
        places = [place for place in range(len(new)) if old[place] != new[place]]
        plain = struct.pack(f"<I{len(places)}I", len(places), *places)
        plain += bytes(new[place] for place in places)
    return bytes(zstandard.ZstdCompressor(level=1).compress(plain))


def decoded(encoding: str, old: bytes, code: bytes) -> bytes:
    plain = zstandard.ZstdDecompressor().decompress(code)
    if encoding == "xor":
        return bytes(a ^ b for a, b in zip(old, plain, strict=True))
    (count,) = struct.unpack("<I", plain[:4])
    new = bytearray(old)
    for place, value in zip(
        struct.unpack(f"<{count}I", plain[4 : 4 + 4 * count]), plain[4 + 4 * count :], strict=True
    ):
        new[place] = value
    return bytes(new)


def stored(
    folder: Path,
    old: dict[str, bytes],
    new: dict[str, bytes],
    *,
    version: str | int = "000001",
    base_version: str | int = "000000",
    encoding: str = "xor",
    sums: str = "xxh3-128",
    files: int = 1,
) -> Path:
    """A directory as slime writes it, its codes dealt out to so many files."""
    folder.mkdir(parents=True)
    changed = [name for name in new if old[name] != new[name]]
    weight_map = {}
    for number in range(min(files, len(changed))):
        file = f"model-{number:05}-of-{files:05}.safetensors"
        codes = {name: coded(encoding, old[name], new[name]) for name in changed[number::files]}
        shard: Model = {name: ("U8", [len(code)], code) for name, code in codes.items()}
        safetensors(folder / file, shard, {name: SUMS[sums](new[name]) for name in codes})
        weight_map |= dict.fromkeys(codes, file)
    told = {
        "version": version,
        "base_version": base_version,
        "delta_encoding": encoding,
        "compression_format": "zstd",
        "checksum_format": sums,
    }
    (folder / NAME).write_text(json.dumps({"metadata": told, "weight_map": weight_map}))
    return folder


def model(seed: int = 0) -> Model:
    random = np.random.default_rng(seed)
    return {
        "wide": ("BF16", [40, 50], random.bytes(4000)),
        "packed": ("F4", [3, 8], random.bytes(12)),
        "table": ("I8", [64, 3], random.bytes(192)),
        "empty": ("F16", [0, 4], b""),
        "scalar": ("F64", [], random.bytes(8)),
    }


def moved(tensors: Model, seed: int = 0) -> Model:
    """The next version: a few bytes of three tensors change."""
    random = np.random.default_rng(seed)
    new = dict(tensors)
    for name in ("wide", "packed", "scalar"):
        dtype, shape, data = tensors[name]
        changed = bytearray(data)
        changed[random.integers(len(data))] ^= 1 + int(random.integers(255))
        new[name] = dtype, shape, bytes(changed)
    return new


def directory(path: Path, tensors: Model) -> Path:
    """A model as Hugging Face has it, in two files."""
    path.mkdir()
    items = list(tensors.items())
    safetensors(path / "model-00001-of-00002.safetensors", dict(items[:2]), {"format": "pt"})
    safetensors(path / "model-00002-of-00002.safetensors", dict(items[2:]))
    (path / "config.json").write_text("{}")
    return path


def data_of(tensors: Model) -> dict[str, bytes]:
    return {name: data for name, (*_, data) in tensors.items()}


def applied(base: Path, deltas: Iterable[Path], target: Path) -> Path:
    applying.apply(Snapshot(base), list(deltas), target, lambda nbytes: None)
    return target


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["weights", *map(str, arguments)])


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


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_another_base_is_refused_before_anything_appears(tmp_path: Path, encoding: str) -> None:
    before, after = model(), moved(model())
    delta = stored(tmp_path / "delta", data_of(before), data_of(after), encoding=encoding)
    other = directory(tmp_path / "other", model(1))
    with pytest.raises(MismatchError, match=r"comes out of .* with another checksum"):
        applied(other, [delta], tmp_path / "made")
    less = dict(before)
    del less["scalar"]
    with pytest.raises(MismatchError, match="has no tensor scalar"):
        applied(directory(tmp_path / "less", less), [delta], tmp_path / "made")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["delta", "less", "other"]
    assert tensors_of(other) == data_of(model(1))


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_no_version_is_applied_twice(tmp_path: Path, encoding: str) -> None:
    before, after = model(), moved(model())
    old = directory(tmp_path / "old", before)
    delta = stored(tmp_path / "delta", data_of(before), data_of(after), encoding=encoding)
    once = applied(old, [delta], tmp_path / "once")
    with pytest.raises(MismatchError, match="has version 000001 already"):
        applied(once, [delta], tmp_path / "twice")
    # Nor where the base says nothing: a copy by other hands, and a file.
    single = safetensors(tmp_path / "new.safetensors", after)
    for base in (directory(tmp_path / "new", after), single):
        with pytest.raises(MismatchError, match="has version 000001 already"):
            applied(base, [delta], tmp_path / "twice")
    assert not (tmp_path / "twice").exists()


def test_versions_in_another_order_are_refused(tmp_path: Path) -> None:
    states = series(tmp_path / "versions", 3)
    old, paths = directory(tmp_path / "old", states[0]), sorted((tmp_path / "versions").iterdir())
    with pytest.raises(MismatchError, match="builds on version 000002, and not on 000001"):
        applied(old, [paths[0], paths[2]], tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_long_chain_opens_one_version_at_a_time(tmp_path: Path) -> None:
    states = series(tmp_path / "versions", 40)
    opened: list[int] = []

    def move(nbytes: int) -> None:
        opened.append(len(list(Path("/proc/self/fd").iterdir())))

    before = len(list(Path("/proc/self/fd").iterdir()))
    old = Snapshot(directory(tmp_path / "old", states[0]))
    applying.apply(old, sorted((tmp_path / "versions").iterdir()), tmp_path / "made", move)
    assert tensors_of(tmp_path / "made") == data_of(states[40])
    assert max(opened) < before + 20


def test_a_whole_version_among_them_is_a_base(tmp_path: Path) -> None:
    states = series(tmp_path / "versions", 4)
    versions = tmp_path / "versions"
    (versions / "weight_v000002").rename(tmp_path / "gone")
    whole = directory(versions / "weight_v000002", states[2])
    told = invoke("apply", whole, versions, "-o", tmp_path / "made")
    assert "version 000004, through 2 versions" in told.output
    assert tensors_of(tmp_path / "made") == data_of(states[4])


@pytest.mark.parametrize("where", [".weight_sync/state.json", NAME])
def test_a_base_that_says_another_version_is_refused(tmp_path: Path, where: str) -> None:
    before, after = model(), moved(model())
    old = directory(tmp_path / "old", before)
    (old / where).parent.mkdir(exist_ok=True)
    delta = stored(tmp_path / "delta", data_of(before), data_of(after), base_version="000003")
    for said, fits in ((4, False), ("000004", False), ("3", True)):
        told: Any = {"version": said}
        (old / where).write_text(json.dumps({"metadata": told} if where == NAME else told))
        if fits:
            assert tensors_of(applied(old, [delta], tmp_path / "made")) == data_of(after)
            assert version_of(tmp_path / "made") == "000001"
            return
        with pytest.raises(MismatchError, match=f"on version 000003, and not on {said}"):
            applied(old, [delta], tmp_path / "made")


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    before, after = model(), moved(model())
    base = safetensors(tmp_path / "model.safetensors", before)
    delta = stored(tmp_path / "delta", data_of(before), data_of(after))
    applied(base, [delta], base)
    assert header_and_tensors(base)[1] == data_of(after)


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = model(), moved(model())
    base = safetensors(tmp_path / "model.safetensors", before)
    delta = stored(tmp_path / "delta", data_of(before), data_of(after))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    told = invoke("apply", base, delta, "-o", base)
    assert told.exit_code == 1
    assert "No space left" in told.output
    assert header_and_tensors(base)[1] == data_of(before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["delta", "model.safetensors"]


def series(folder: Path, count: int, first: int = 1) -> list[Model]:
    """A base and so many versions of it, stored in a folder; all of them."""
    states = [model()]
    for number in range(1, count + 1):
        states.append(moved(states[-1], number))
        if number >= first:
            stored(
                folder / f"weight_v{number:06}",
                data_of(states[-2]),
                data_of(states[-1]),
                version=f"{number:06}",
                base_version=f"{number - 1:06}",
                encoding=("xor", "overwrite")[number % 2],
            )
    return states


def test_a_folder_of_versions_is_applied_in_order(tmp_path: Path) -> None:
    states = series(tmp_path / "versions", 12)
    old = directory(tmp_path / "old", states[0])
    told = invoke("apply", old, tmp_path / "versions", "-o", tmp_path / "made")
    assert told.exit_code == 0, told.output
    assert "made: version 000012, through 12 versions" in told.output
    assert tensors_of(tmp_path / "made") == data_of(states[12])
    # From where the base says that it is.
    single = tmp_path / "versions" / "weight_v000001"
    assert invoke("apply", old, single, "-o", tmp_path / "one").exit_code == 0
    told = invoke("apply", tmp_path / "one", tmp_path / "versions", "-o", tmp_path / "all")
    assert "all: version 000012, through 11 versions" in told.output
    assert tensors_of(tmp_path / "all") == data_of(states[12])
    # A mark is of this copy: what others make of it is another version.
    told = invoke("diff", tmp_path / "one", tmp_path / "all", "-o", tmp_path / "own")
    assert invoke("apply", tmp_path / "one", tmp_path / "own", "-o", tmp_path / "x").exit_code == 0
    assert version_of(tmp_path / "x") is None
    told = invoke("apply", tmp_path / "all", tmp_path / "versions", "-o", tmp_path / "more")
    assert told.exit_code == 1
    assert "builds on version 000012, which the base has" in told.output
    assert not (tmp_path / "more").exists()


def test_a_pruned_folder_needs_a_base_at_its_start(tmp_path: Path) -> None:
    states = series(tmp_path / "versions", 4, first=3)
    old, second = directory(tmp_path / "old", states[0]), directory(tmp_path / "two", states[2])
    told = invoke("apply", old, tmp_path / "versions", "-o", tmp_path / "made")
    assert told.exit_code == 1
    assert "with another checksum" in told.output
    assert invoke("apply", second, tmp_path / "versions", "-o", tmp_path / "made").exit_code == 0
    assert tensors_of(tmp_path / "made") == data_of(states[4])


def test_what_is_no_chain_is_refused(tmp_path: Path) -> None:
    states = series(tmp_path / "versions", 4)
    old, versions = directory(tmp_path / "old", states[0]), tmp_path / "versions"
    gone = tmp_path / "gone"
    (versions / "weight_v000003").rename(gone)

    def refused() -> str:
        told = invoke("apply", old, versions, "-o", tmp_path / "made")
        assert told.exit_code == 1
        assert not (tmp_path / "made").exists()
        return " ".join(told.output.split())

    assert "are no chain: versions 0, 3 are built on and not there" in refused()
    (old / ".weight_sync").mkdir()
    (old / ".weight_sync" / "state.json").write_text('{"version": "000000"}')
    assert "has version 4, and a version between 000002 and it is missing" in refused()
    gone.rename(versions / "weight_v000003")
    stored(versions / "other", data_of(states[0]), data_of(states[1]))
    assert "build on the same version" in refused()
    for path in versions.iterdir():
        path.rename(tmp_path / f"moved-{path.name}")
    assert "stores no version's changes" in refused()


CRAFTED: list[tuple[Callable[[Any], object], str]] = [
    (lambda index: index.pop("metadata"), "'metadata' is missing"),
    (lambda index: index.pop("weight_map"), "'weight_map' is missing"),
    (lambda index: index["metadata"].pop("base_version"), "'base_version' is missing"),
    (lambda index: index["metadata"].update(version="1\n2"), "names no version"),
    (lambda index: index["metadata"].update(version=True), "names no version"),
    (lambda index: index["metadata"].update(version=""), "names no version"),
    (lambda index: index["metadata"].update(delta_encoding="sum"), "'sum' is not a valid"),
    (lambda index: index["metadata"].update(delta_encoding=["xor"]), "is not a valid"),
    (lambda index: index["metadata"].update(compression_format="lz4"), "'lz4' is not zstd"),
    (lambda index: index["metadata"].update(checksum_format="md5"), "is none of xxh3-128"),
    (lambda index: index["metadata"].update(checksum_format=[]), "unhashable"),
    (lambda index: index["metadata"].update(checksum_format="adler32"), "has no checksum of"),
    (lambda index: index.update(weight_map=[]), "tells of no changes"),
    (lambda index: index["weight_map"].update(wide="../x"), "is no name of a file"),
    (lambda index: index["weight_map"].update(wide=7), "is no name of a file"),
    (lambda index: index["weight_map"].update(table="none"), "is the directory complete"),
    (lambda index: index["weight_map"].pop("wide"), "has wide, and the index does not"),
    (
        lambda index: index["weight_map"].update(table=index["weight_map"]["wide"]),
        "lacks the change of table",
    ),
]


@pytest.mark.parametrize(("change", "words"), CRAFTED)
def test_crafted_indices_are_refused(
    tmp_path: Path, change: Callable[[Any], object], words: str
) -> None:
    delta = stored(tmp_path / "delta", data_of(model()), data_of(moved(model())))
    index = json.loads((delta / NAME).read_text())
    change(index)
    (delta / NAME).write_text(json.dumps(index))
    with pytest.raises(DataError, match=words):
        StoredVersion(delta)


@pytest.mark.parametrize("text", ["", "[]", "[" * 10**5, '{"metadata": ' + "9" * 5000 + "}"])
def test_what_is_no_index_is_refused(tmp_path: Path, text: str) -> None:
    delta = stored(tmp_path / "delta", data_of(model()), data_of(moved(model())))
    (delta / NAME).write_text(text)
    with pytest.raises(DataError, match="is no JSON"):
        StoredVersion(delta)


@pytest.mark.parametrize(
    ("shard", "metadata", "words"),
    [
        (("I8", [1]), {"wide": "0" * 32}, "is no code of a change"),
        (("U8", [1, 1]), {"wide": "0" * 32}, "is no code of a change"),
        (("U8", [1]), {}, "has no checksum"),
        (("U8", [1]), {"wide": "0" * 31}, "has no checksum"),
        (("U8", [1]), {"wide": "x" * 32}, "has no checksum"),
        (("U8", [1]), [], "has no header"),
        (("U8", [1]), {"wide": "0" * 32}, "is no frame of zstd"),
    ],
)
def test_crafted_codes_are_refused(
    tmp_path: Path, shard: tuple[str, list[int]], metadata: Any, words: str
) -> None:
    before, after = data_of(model()), data_of(model())
    after["wide"] = bytes(4000)
    delta = stored(tmp_path / "delta", before, after)
    (file,) = delta.glob("*.safetensors")
    safetensors(file, {"wide": (*shard, b"x")}, metadata or ({} if metadata == {} else [1]))
    with pytest.raises(DataError, match=words):
        applied(directory(tmp_path / "old", model()), [delta], tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_damage_is_refused_or_changes_nothing(tmp_path: Path, encoding: str) -> None:
    before, after = model(), moved(model())
    old = directory(tmp_path / "old", before)
    delta = stored(tmp_path / "delta", data_of(before), data_of(after), encoding=encoding)
    (file,) = delta.glob("*.safetensors")
    whole, random, refused = file.read_bytes(), np.random.default_rng(0), 0
    for turn in range(120):
        damaged = bytearray(whole)
        damaged[random.integers(len(whole))] ^= 1 << random.integers(8)
        file.write_bytes(damaged if turn % 3 else whole[: random.integers(len(whole))])
        target = tmp_path / f"made-{turn}"
        try:
            applied(old, [delta], target)
        except (DataError, MismatchError):
            refused += 1
            assert not target.exists()
        else:
            assert tensors_of(target) == data_of(after)
    assert refused > 100


def test_what_has_no_place_in_the_format_is_refused(tmp_path: Path) -> None:
    old = directory(tmp_path / "old", model())
    for number, (name, tensor) in enumerate(
        [("more", ("U8", [1], b"x")), ("table", ("I8", [3, 64], bytes(192)))]
    ):
        new = directory(tmp_path / f"new{number}", {**model(), name: tensor})
        for pair in ((old, new), (new, old)):
            told = invoke("diff", *pair, "-o", tmp_path / "delta", "--format", "slime")
            assert told.exit_code == 1
            assert f"error: {name} is " in told.output
    assert not (tmp_path / "delta").exists()


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


@pytest.mark.parametrize(
    "options",
    [
        ("--format", "slime", "--version", "v7"),
        ("--format", "slime", "--base-version", "new"),
        ("--format", "modelexpress", "--encoding", "overwrite"),
    ],
)
def test_what_a_dialect_cannot_say_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    old, new = directory(tmp_path / "old", model()), directory(tmp_path / "new", moved(model()))
    told = invoke("diff", old, new, "-o", tmp_path / "delta", *options)
    assert told.exit_code == 1
    assert told.output.startswith("error: ")
    assert not (tmp_path / "delta").exists()


def test_names_stay_in_their_lines(tmp_path: Path) -> None:
    name = "a\nb\x1b[31m\u202e[bold]"
    before: Model = {name: ("U8", [4], b"abcd")}
    after: Model = {name: ("U8", [4], b"abxd")}
    old = safetensors(tmp_path / "old", before)
    new = safetensors(tmp_path / "new", after)
    delta = stored(tmp_path / "delta", data_of(before), data_of(after))
    assert invoke("diff", old, new, "-o", tmp_path / "file").exit_code == 0
    for path in (tmp_path / "file", delta):
        told = invoke("show", path)
        assert told.exit_code == 0, told.output
        assert "a\\nb\\x1b[31m\\u202e[bold]" in told.output
    told = invoke("apply", safetensors(tmp_path / "odd", model()), delta, "-o", tmp_path / "made")
    assert "has no tensor 'a\\nb" in told.output
    safetensors(tmp_path / "odd", {name: ("U8", [5], b"abcd")})
    assert "'a\\nb" in invoke("diff", tmp_path / "odd", new, "-o", tmp_path / "none").output
