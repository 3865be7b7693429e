"""Directories that are damaged, crafted, or say what the format has no place for are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plain_directories import (
    Model,
    applied,
    data_of,
    directory,
    invoke,
    model,
    moved,
    safetensors,
    stored,
    tensors_of,
)

from sparsewire.errors import DataError, MismatchError
from sparsewire.weights.directories.index import NAME
from sparsewire.weights.directories.stored import StoredVersion

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
