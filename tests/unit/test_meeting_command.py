"""`sparsewire meeting` says where it listens, ends in order, and tells if it cannot listen."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("torch")

COMMAND = [sys.executable, "-m", "sparsewire", "meeting", "--bind"]


@contextmanager
def serving() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A meeting at a free port, and the address that it has told."""
    with subprocess.Popen([*COMMAND, "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            # A pipe gets this line only if it is flushed, as the command goes on.
            line = process.stdout.readline()
            yield process, line.removeprefix("replicas meet at ").partition(";")[0]
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_tells_where_replicas_meet_and_ends_when_told_to(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparsewire.torch.outer import meeting_at

    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with serving() as (process, address):
        meeting_at(address, "paris", expect=2, timeout=20)
        process.send_signal(number)
        assert process.wait(20) == 0


def test_a_port_that_is_taken_is_told_in_a_sentence() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [*COMMAND, f"127.0.0.1:{port}"], capture_output=True, text=True, timeout=50
        )
    assert ended.returncode == 1
    assert f"error: cannot listen on port {port} of 127.0.0.1" in ended.stderr
    assert "Traceback" not in ended.stderr
