"""Directories that a reader keeps: nobody else changes them, and nothing beside them changes."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from test_weights_files import written

from sparsewire.errors import DataError, InputError
from sparsewire.tools.weights.serving import serve
from sparsewire.weights import Publisher, Receiver, as_numpy
from sparsewire.weights.readers.checkout import MARK, Checkout
from sparsewire.weights.versions.message import Delta, Writer, parse
from sparsewire.weights.versions.safetensors import header_of

LIMIT_S = 10.0
VALUES = np.arange(4, dtype=np.float32)


def test_two_readers_do_not_change_one_directory(tmp_path: Path) -> None:
    with Publisher("127.0.0.1:0") as publisher:
        with (
            Receiver(publisher.address, Checkout(tmp_path)),
            pytest.raises(InputError, match="pulls into"),
        ):
            Checkout(tmp_path)
        Checkout(tmp_path).close()


def test_a_file_that_is_a_link_stays_as_it_is(tmp_path: Path) -> None:
    blob = written(tmp_path / "blob", {"a": ("F32", VALUES)})
    before = blob.read_bytes()
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "model.safetensors").symlink_to(blob)
    with pytest.raises(InputError, match="is a link"):
        Checkout(copy)
    assert blob.read_bytes() == before


def test_a_file_of_another_suffix_is_pulled_under_a_name_that_is_found(tmp_path: Path) -> None:
    version = written(tmp_path / "weights.bin", {"a": ("F32", VALUES)})
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish(version)
        with Receiver(publisher.address, Checkout(tmp_path / "got")) as reader:
            reader.stage(timeout=LIMIT_S).apply()
            np.testing.assert_array_equal(as_numpy(reader.tensors["a"]), VALUES)
    assert (tmp_path / "got" / "model.safetensors").read_bytes() == version.read_bytes()


def test_the_mark_of_a_directory_is_its_own(tmp_path: Path) -> None:
    written(tmp_path / "model.safetensors", {"a": ("F32", VALUES)})
    (tmp_path / MARK).write_text('{"condition": "whole", "version": 7}')
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish(tmp_path)
        with Receiver(publisher.address, Checkout(tmp_path / "got")) as reader:
            staged = reader.stage(timeout=LIMIT_S)
            (delta,) = staged._following._arrived.deltas  # type: ignore[attr-defined]
            assert delta.texts == {}


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.py", "model.safetensors", ".json/.."])
def test_texts_are_json_files_alone(tmp_path: Path, name: str) -> None:
    delta = Delta("1", "", {"other.safetensors": header_of({})}, b"", bytes(16))
    delta.texts = {name: b"{}"}
    path = tmp_path / "message"
    with path.open("wb") as file:
        Writer(file).finish(delta)
    with pytest.raises(DataError, match=r"no JSON file|no name"):
        parse(memoryview(path.read_bytes()), "message")


def test_a_directory_takes_files_of_tensors_alone(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"model\.py"):
        Checkout(tmp_path).check_files(["model.py"])


def test_a_directory_that_a_reader_changes_is_not_published(tmp_path: Path) -> None:
    written(tmp_path / "model.safetensors", {"a": ("F32", VALUES)})
    mark = tmp_path / MARK
    ended = threading.Event()
    with Publisher("127.0.0.1:0") as publisher:
        mark.write_text(json.dumps({"condition": "changing", "version": None}))
        assert not list(serve(publisher, tmp_path, 0.05, ended, once=True))
        mark.write_text(json.dumps({"condition": "whole", "version": 3}))
        assert len(list(serve(publisher, tmp_path, 0.05, ended, once=True))) == 1


def test_a_file_that_is_cut_off_does_not_end_serving(tmp_path: Path) -> None:
    path = written(tmp_path / "model.safetensors", {"a": ("F32", VALUES)})
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])

    class Ended(threading.Event):
        """The first wait mends the file."""

        def wait(self, timeout: float | None = None) -> bool:
            if path.stat().st_size < len(whole):
                path.write_bytes(whole)
            return super().wait(timeout)

    with Publisher("127.0.0.1:0") as publisher:
        found = next(serve(publisher, tmp_path, 0.05, Ended()))
        assert found[1].version == 0
        path.write_bytes(whole[:-4])
        with pytest.raises(DataError, match="cut off"):
            list(serve(publisher, tmp_path, 0.05, threading.Event(), once=True))
