"""Runs one command for every rank of a lab, as torchrun would, and waits for all."""

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from sparsewire.tools.lab.aggregators import Aggregation
from sparsewire.tools.lab.lab import Lab

Emit = Callable[[int, str, bool], None]
"""Takes a place, one line of its output without its end, and whether it is an error line."""


def run(
    lab: Lab,
    argv: Sequence[str],
    *,
    grace: float,
    tell: Callable[[str], None],
    emit: Emit | None = None,
) -> int:
    """Run `argv` for every rank until all have ended; return the first status that is not zero.

    The lab's aggregators, if it has any, run beside them, and may fail too.
    Once a rank has failed, the others have `grace` seconds to end. One ended by signal n counts
    as status 128 + n, as in a shell. With `emit`, output is passed on line by line from threads of
    its own; without, the ranks write to this process's output. `tell` takes what the lab itself has
    to say. Raises OSError if `argv` cannot be started.
    """
    ended: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    pumps: list[threading.Thread] = []
    for place, command, env in _commands(lab, argv):
        process = _start(lab, place, command, env, piped=emit is not None)
        if emit is not None:
            pumps.append(_thread(_pump, place, process.stdout, emit, False))
            pumps.append(_thread(_pump, place, process.stderr, emit, True))
        _thread(_await, place, process, ended)
    status = _first_failure(ended, lab, grace, tell)
    # Processes that the ranks left behind hold the other ends of the pipes.
    lab.stop()
    for pump in pumps:
        pump.join()
    return status


def _commands(
    lab: Lab, argv: Sequence[str]
) -> Iterator[tuple[int, Sequence[str], Mapping[str, str]]]:
    """Places, aggregators' first, with what runs there and what it is told."""
    aggregation = Aggregation.of(lab)
    for place, command in aggregation.commands():
        yield place, command, aggregation.settings()
    for rank in range(lab.world_size):
        # A lab without aggregators leaves it to the caller to name some.
        told = aggregation.environment(rank) if lab.aggregators else aggregation.settings()
        yield rank, argv, {**told, **lab.environment(rank)}


def _start(
    lab: Lab, place: int, argv: Sequence[str], env: Mapping[str, str], *, piped: bool
) -> subprocess.Popen[Any]:
    cores = os.cpu_count() or 1
    # The ranks share this machine's cores, and should write lines as soon as they have them.
    defaults = {
        "OMP_NUM_THREADS": str(max(1, cores // lab.world_size)),
        "PYTHONUNBUFFERED": "1",
    }
    output: dict[str, Any] = {}
    if piped:
        pipe = subprocess.PIPE
        output = {"stdout": pipe, "stderr": pipe, "encoding": "utf-8", "errors": "replace"}
    whole = {**defaults, **os.environ, **env}
    return lab.popen(place, argv, whole, stdin=subprocess.DEVNULL, **output)


def _thread(target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread


def _pump(place: int, output: TextIO, emit: Emit, is_error: bool) -> None:
    with output:
        for line in output:
            try:
                emit(place, line.rstrip("\n"), is_error)
            except BrokenPipeError:
                # Nobody reads the lab's output any more. Closing the rank's passes that on to it.
                return


def _await(
    place: int, process: subprocess.Popen[Any], ended: queue.SimpleQueue[tuple[int, int]]
) -> None:
    ended.put((place, process.wait()))


def _first_failure(
    ended: queue.SimpleQueue[tuple[int, int]], lab: Lab, grace: float, tell: Callable[[str], None]
) -> int:
    status = 0
    deadline: float | None = None
    running = lab.world_size
    while running:
        try:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            place, code = ended.get(timeout=wait)
        except queue.Empty:
            tell(f"ending {_count(running, lab.unit)} still running after {grace:g} s")
            return status
        running -= place < lab.world_size
        if code == 0:
            continue
        allowance = f"; {_count(running, lab.unit)} still running, given {grace:g} s to end"
        tell(f"{lab.name(place)} {_ending(code)}" + (allowance if running and not status else ""))
        if not status:
            status = code if code > 0 else 128 - code
            deadline = time.monotonic() + grace
    return status


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def _ending(code: int) -> str:
    if code > 0:
        return f"failed with status {code}"
    return f"was ended by signal {-code} ({signal.strsignal(-code)})"
