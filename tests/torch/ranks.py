"""Rank processes that stay alive between tests, because starting torch takes seconds."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist

# How many times as long all may take, as under a tool that watches memory.
PATIENCE = float(os.environ.get("SPARSEWIRE_TESTS_PATIENCE", "1"))
TASK_TIMEOUT_S = 45.0 * PATIENCE
GROUP_TIMEOUT_S = 30.0 * PATIENCE
# "1" leaves out the import that torch before 2.14 needs.
WITHOUT_IMPORT = "SPARSEWIRE_TESTS_WITHOUT_IMPORT"

# Forked from a server that has imported torch, ranks start in no time.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo"])


class RankFailed(AssertionError):
    """A task raised, or did not end, on some ranks. The message has their tracebacks."""


class Ranks:
    """`size` processes with "sparsewire" as their default group."""

    def __init__(self, size: int, backend: str = "sparsewire") -> None:
        self._server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.processes: list[Any] = []
        self._pipes: list[Connection] = []
        for rank in range(size):
            ours, theirs = _processes.Pipe()
            arguments = (theirs, rank, size, self._server.port, backend)
            process = _processes.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self._pipes.append(ours)
        self.broken = False

    def run(self, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call `task(*arguments)` on all ranks; what each returned, or RankFailed."""
        results = self.outcomes(task, *arguments)
        failures = [
            f"rank {rank}: {result}"
            for rank, result in enumerate(results)
            if isinstance(result, Failure)
        ]
        if failures:
            # Others may wait for what a rank that failed never does, and no test after this should.
            self.close()
            raise RankFailed("\n".join(failures))
        return results

    def outcomes(self, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        """As `run`, with a `Failure` in place of what a rank that raised or died returns."""
        results: dict[Connection, Any] = {}
        for pipe in self._pipes:
            try:
                pipe.send((task, arguments))
            except BrokenPipeError:
                self.broken = True
                results[pipe] = Failure("had died before")
        deadline = time.monotonic() + TASK_TIMEOUT_S
        while len(results) < len(self._pipes):
            left = [pipe for pipe in self._pipes if pipe not in results]
            ready = wait(left, max(0.0, deadline - time.monotonic()))
            if not ready:
                self.close()
                results.update(dict.fromkeys(left, Failure("did not end in time")))
            results.update({pipe: self._receive(pipe) for pipe in ready})
        return [results[pipe] for pipe in self._pipes]

    def _receive(self, pipe: Any) -> Any:
        try:
            return pipe.recv()
        except (EOFError, ConnectionResetError):
            self.broken = True
            return Failure("died")

    def close(self) -> None:
        self.broken = True
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()


class Failure:
    """How a task failed on one rank."""

    def __init__(self, text: str, error: BaseException | None = None) -> None:
        self.text = text
        self.error = error

    def __str__(self) -> str:
        return self.text


def _serve(pipe: Connection, rank: int, size: int, port: int, backend: str) -> None:
    # Ctrl-C in a terminal is for the test runner, which then closes the pipe.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    # A rank that cannot join says why to whoever gives it a task.
    failure = _outcome(_join, (rank, size, port, backend))
    while True:
        try:
            task, arguments = pipe.recv()
        except EOFError:
            os._exit(0)
        pipe.send(failure or _outcome(task, arguments))


def _join(rank: int, size: int, port: int, backend: str) -> None:
    _provide_backend()
    dist.init_process_group(
        backend,
        store=dist.TCPStore("127.0.0.1", port),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=GROUP_TIMEOUT_S),
    )


def _provide_backend() -> None:
    """Import the backend, unless this run is to show that torch finds it by itself."""
    if os.environ.get(WITHOUT_IMPORT) == "1":
        assert "sparsewire" not in sys.modules
    else:
        import sparsewire.torch  # noqa: F401


def _outcome(task: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    faulthandler.dump_traceback_later(TASK_TIMEOUT_S - 2, file=sys.__stderr__)
    torch.manual_seed(0)
    try:
        return task(*arguments)
    except Exception as error:
        return Failure(traceback.format_exc(), error)
    finally:
        faulthandler.cancel_dump_traceback_later()
