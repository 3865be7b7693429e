"""Runs one command on every host of a lab, one rank each as torchrun would, and waits for all."""

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from sparsewire.lab.lab import Lab

Emit = Callable[[int, str, bool], None]
"""Takes a host, one line of its output without the end of line, and whether it is an error line."""


def run(
    lab: Lab,
    argv: Sequence[str],
    *,
    grace: float,
    tell: Callable[[str], None],
    emit: Emit | None = None,
) -> int:
    """Run `argv` on every host until all have ended; return the first status that is not zero.

    Once a host has failed, the others have `grace` seconds to end. A host ended by signal n counts
    as status 128 + n, as in a shell. With `emit`, output is passed on line by line from threads of
    its own; without, the hosts write to this process's output. `tell` takes what the lab itself has
    to say. Raises OSError if `argv` cannot be started.
    """
    ended: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    pumps: list[threading.Thread] = []
    for host in range(len(lab.addresses)):
        process = _start(lab, host, argv, piped=emit is not None)
        if emit is not None:
            pumps.append(_thread(_pump, host, process.stdout, emit, False))
            pumps.append(_thread(_pump, host, process.stderr, emit, True))
        _thread(_await, host, process, ended)
    status = _first_failure(ended, len(lab.addresses), grace, tell)
    # Processes that the ranks left behind hold the other ends of the pipes.
    lab.stop()
    for pump in pumps:
        pump.join()
    return status


def _start(lab: Lab, host: int, argv: Sequence[str], *, piped: bool) -> subprocess.Popen[Any]:
    cores = os.cpu_count() or 1
    # The hosts share this machine's cores, and should write lines as soon as they have them.
    defaults = {
        "OMP_NUM_THREADS": str(max(1, cores // len(lab.addresses))),
        "PYTHONUNBUFFERED": "1",
    }
    output: dict[str, Any] = {}
    if piped:
        pipe = subprocess.PIPE
        output = {"stdout": pipe, "stderr": pipe, "encoding": "utf-8", "errors": "replace"}
    env = {**defaults, **os.environ, **lab.environment(host)}
    return lab.popen(host, argv, env, stdin=subprocess.DEVNULL, **output)


def _thread(target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread


def _pump(host: int, output: TextIO, emit: Emit, is_error: bool) -> None:
    with output:
        for line in output:
            try:
                emit(host, line.rstrip("\n"), is_error)
            except BrokenPipeError:
                # Nobody reads the lab's output any more. Closing the host's passes that on to it.
                return


def _await(
    host: int, process: subprocess.Popen[Any], ended: queue.SimpleQueue[tuple[int, int]]
) -> None:
    ended.put((host, process.wait()))


def _first_failure(
    ended: queue.SimpleQueue[tuple[int, int]], hosts: int, grace: float, tell: Callable[[str], None]
) -> int:
    status = 0
    deadline: float | None = None
    for running in reversed(range(hosts)):
        try:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            host, code = ended.get(timeout=wait)
        except queue.Empty:
            tell(f"ending {_hosts(running + 1)} still running after {grace:g} s")
            return status
        if code == 0:
            continue
        allowance = f"; {_hosts(running)} still running, given {grace:g} s to end"
        tell(f"host {host} {_ending(code)}" + (allowance if running and not status else ""))
        if not status:
            status = code if code > 0 else 128 - code
            deadline = time.monotonic() + grace
    return status


def _hosts(count: int) -> str:
    return f"{count} host" if count == 1 else f"{count} hosts"


def _ending(code: int) -> str:
    if code > 0:
        return f"failed with status {code}"
    return f"was ended by signal {-code} ({signal.strsignal(-code)})"
