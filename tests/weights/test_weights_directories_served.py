"""Directories that are served and pulled: files come over byte for byte, and a kill is mended."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support import until
from test_weights_files import Arrays, model, moved, written

from sparsewire.errors import DataError
from sparsewire.tools.cli.main import app
from sparsewire.tools.weights.serving import serve, versions_in
from sparsewire.weights import Publisher, Receiver
from sparsewire.weights.readers.checkout import MARK, Checkout

LIMIT_S = 20.0


def version_at(folder: Path, tensors: Arrays, note: str) -> Path:
    """A version in two files, with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = list(tensors.items())
    for number, part in enumerate((parts[:2], parts[2:])):
        written(folder / f"model-{number}.safetensors", dict(part))
    (folder / "config.json").write_text(json.dumps({"note": note}))
    return folder


def assert_same_files(found: Path, wanted: Path) -> None:
    names = sorted(each.name for each in found.iterdir() if each.name != MARK)
    assert names == sorted(each.name for each in wanted.iterdir())
    for name in names:
        assert (found / name).read_bytes() == (wanted / name).read_bytes(), name


def pull(address: object, folder: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["weights", "pull", str(address), str(folder), *options])


def test_a_directory_follows(tmp_path: Path) -> None:
    first = version_at(tmp_path / "1", model(), "one")
    second = version_at(tmp_path / "2", moved(model()), "two")
    tensors = moved(moved(model()))
    del tensors["small"]
    third = version_at(tmp_path / "3", tensors, "three")
    got = tmp_path / "got"
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish(first)
        told = pull(publisher.address, got)
        assert "version 0: " in told.output, told.output
        assert "the whole version" in told.output
        assert_same_files(got, first)
        inode = (got / "model-0.safetensors").stat().st_ino
        publisher.publish(second)
        assert "bytes, a delta" in pull(publisher.address, got).output
        assert_same_files(got, second)
        assert (got / "model-0.safetensors").stat().st_ino == inode
        publisher.publish(third)
        assert pull(publisher.address, got).exit_code == 0
        assert_same_files(got, third)
        assert "version 2: the directory has it" in pull(publisher.address, got).output
        assert json.loads((got / MARK).read_text()) == {"condition": "whole", "version": 2}


def test_a_kill_while_a_version_is_applied_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = version_at(tmp_path / "1", model(), "one")
    second = version_at(tmp_path / "2", moved(model()), "two")
    got = tmp_path / "got"
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish(first)
        pull(publisher.address, got)
        publisher.publish(second)
        with Receiver(publisher.address, Checkout(got)) as receiver:
            staged = receiver.stage(timeout=LIMIT_S).verify()

            def torn(change: bytes, chunk: object, form: object) -> None:
                chunk[::3] = 7  # type: ignore[index]
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr("sparsewire.weights.readers.preparing.write_change", torn)
                with pytest.raises(KeyboardInterrupt):
                    staged.apply()
            assert json.loads((got / MARK).read_text())["condition"] == "changing"
            again = receiver.stage(timeout=LIMIT_S)
            assert again.way.is_whole
        (got / ".sparsewire.left").mkdir()
        told = pull(publisher.address, got)
        assert "the whole version" in told.output, told.output
        assert_same_files(got, second)


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sparsewire", "weights", "serve", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        found = re.fullmatch(r"listening on (\S+)\n", process.stdout.readline())
        assert found
        yield process, found[1]
    finally:
        process.kill()
        process.wait(LIMIT_S)


def test_serve_pull_status(tmp_path: Path) -> None:
    version_at(tmp_path / "runs" / "step-5", model(), "one")
    version_at(tmp_path / "runs" / "step-10", moved(model()), "two")
    store, got = tmp_path / "store", tmp_path / "got"
    options = (tmp_path / "runs", "--bind", "127.0.0.1:0", "--store", store, "--interval", "0.1")
    with serving(*options) as (process, address):
        assert process.stdout
        assert process.stdout.readline().startswith("version 5 from ")
        assert process.stdout.readline().startswith("version 10 from ")
        assert pull(address, got, "--version", "5").exit_code == 0
        assert_same_files(got, tmp_path / "runs" / "step-5")
        version_at(tmp_path / "runs" / "step-11", moved(moved(model())), "three")
        assert process.stdout.readline().startswith("version 11 from ")
        plot = tmp_path / "plot.png"
        told = pull(address, got, "--name", "reader", "--plot", str(plot))
        assert "version 11: " in told.output, told.output
        assert "2 deltas" in told.output
        assert plot.stat().st_size > 1000
        assert_same_files(got, tmp_path / "runs" / "step-11")
        shown = CliRunner().invoke(app, ["weights", "status", address])
        assert shown.output.startswith("version 11; 3 messages of versions 5 to 11"), shown.output
        told = CliRunner().invoke(app, ["weights", "status", address, "--json"])
        assert json.loads(told.output)["version"] == 11
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "ended\n"
        assert process.wait(LIMIT_S) == 0
    shown = CliRunner().invoke(app, ["weights", "status", address, "--timeout", "1"])
    assert shown.exit_code == 1
    assert "error: no publisher of weights answers" in shown.output
    told = pull(address, got, "--timeout", "0.5")
    assert told.exit_code == 1
    assert "error: the publisher at" in told.output
    with serving(*options) as (process, address):
        shown = CliRunner().invoke(app, ["weights", "status", address])
        assert shown.output.startswith("version 11; "), shown.output


def test_a_directory_that_changes(tmp_path: Path) -> None:
    folder = version_at(tmp_path / "model", model(), "one")
    ended = threading.Event()
    with Publisher("127.0.0.1:0") as publisher:
        found = serve(publisher, folder, 0.05, ended)
        assert next(found)[1].version == 0
        version_at(folder, moved(model()), "two")
        path, published = next(found)
        assert (path, published.version) == (folder, 1)
        assert 0 < published.changed < published.elements
        ended.set()
        assert next(found, None) is None


def test_what_can_be_served(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file or folder with files that end in \.safetensors"):
        versions_in(tmp_path)
    for name in ("v10", "v9", "a"):
        version_at(tmp_path / name, model(), name)
    assert [each.path.name for each in versions_in(tmp_path)] == ["a", "v10", "v9"]
    (tmp_path / "a").rename(tmp_path / "v8")
    assert [each.number for each in versions_in(tmp_path)] == [8, 9, 10]


def test_a_relay_pulls(tmp_path: Path) -> None:
    first = version_at(tmp_path / "1", model(), "one")
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish(first)
        with Receiver(publisher.address, relay="127.0.0.1:0") as relay:
            relay.stage(timeout=LIMIT_S).apply()
            before = publisher.status()["bytes_sent"]
            assert pull(publisher.address, tmp_path / "got").exit_code == 0
            assert publisher.status()["bytes_sent"] == before
            until(lambda: relay.status()["bytes_sent"] > 0)
            told = CliRunner().invoke(app, ["weights", "status", str(relay.relay)])
            assert "ask the publisher" in told.output
    assert_same_files(tmp_path / "got", first)
