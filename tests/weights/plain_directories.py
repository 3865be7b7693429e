"""A plain reader and writer of the directories of slime, miles and ModelExpress, by the words of
their formats: tests hold the library against it."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from sparsewire.tools.cli.main import app
from sparsewire.weights.directories import applying
from sparsewire.weights.directories.index import NAME
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
