"""Collectives on device tensors: two threads take them to the engine and back, in program order.

One thread waits for the device and issues; the other waits for the engine and brings results back.
So the caller's thread waits for neither, and one tensor's copies run beside another's time on the
network.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias

import torch

import sparsewire
from sparsewire.device.accelerator import Event, ignore_captures
from sparsewire.device.staging import Staging, Stagings
from sparsewire.device.transfer import Transfer, called
from sparsewire.errors import Error, Timeout
from sparsewire.torch.calls.turns import Arrival, Turns

_PATIENCE_S = 5.0

Task = Callable[[], None]
Prepare = Callable[[Staging], Transfer]
Watching = Callable[[], AbstractContextManager[None]]
"""Makes a context manager that sees how the code inside it ends."""
Call: TypeAlias = "Callable[..., sparsewire.Work]"
"""A collective of a tensor on the host, with arguments that depend on the transfer."""


class Handle:
    """A handle of a collective on a tensor of a device, like `sparsewire.Work` on host memory."""

    def __init__(self, staging: Staging) -> None:
        self.staging = staging
        self.transfer: Transfer | None = None
        self.arrival = Arrival()
        self.watching: Watching = nullcontext
        """Sees how the program's wait ends."""
        self._error: Exception | None = None

    def fail(self, error: Exception) -> None:
        self._error = error
        self.arrival.end(None)

    def wait(self, timeout: float = math.inf) -> None:
        """Block until the copy back has begun; the caller's stream then waits for its end.

        Raises the error of the collective, or Timeout after `timeout` seconds.
        """
        with self.watching():
            there = self._begun(timeout)
        assert self.transfer is not None
        self.transfer.lead_caller(there)

    def arrive(self, timeout: float = math.inf) -> None:
        """Like `wait`, but block until the result is on the device; no stream waits for it."""
        self._begun(timeout).synchronize()

    def is_completed(self) -> bool:
        """Whether the collective has failed, or has ended and its result is on the device."""
        return self.arrival.has_come()

    def exception(self) -> Exception | None:
        """The error of the collective; None if it succeeded or has not ended."""
        return self._error

    def _begun(self, timeout: float) -> Event:
        """The event at the end of the copy back; blocks until the copy has begun."""
        if not self.arrival.over.wait(None if math.isinf(timeout) else timeout):
            raise Timeout(
                f"a collective on {self.staging.device} has not ended after {timeout} s: "
                "wait longer, or find out which rank has not called it"
            )
        if self._error is not None:
            raise self._error
        assert self.arrival.there is not None
        return self.arrival.there


class DeviceQueue:
    """The collectives of one group on tensors of devices, over a separate communicator.

    It is separate because these collectives reach the engine later than they were called. So their
    order among collectives on host memory differs from rank to rank.
    """

    def __init__(self, rank: int, abort: Callable[[str], None]) -> None:
        """`abort` fails all collectives in flight, on all ranks."""
        self._rank = rank
        self._abort = abort
        self._in_flight: set[Handle] = set()
        self._stagings = Stagings()
        self._turns = Turns()
        self._down = Courier("sparsewire-device-down")
        self._up = Courier("sparsewire-device-up")

    def submit(
        self,
        tensor: torch.Tensor,
        prepare: Prepare,
        call: Call,
        targets: Sequence[torch.Tensor] = (),
        during: Watching = nullcontext,
    ) -> Handle:
        """Have `prepare` make a transfer, and `call` give its tensor on the host to the engine.

        Both run in the thread that may wait for the device, and `during` sees all errors in that
        thread. The result goes to the tensor, or to `targets`.
        """
        handle = Handle(self._stagings.of(tensor.device))
        ready = called(handle.staging, tensor)
        former = self._turns.take([tensor, *targets], handle.arrival)
        self._in_flight.add(handle)
        self._down.put(partial(self._send, handle, former, ready, prepare, call, during))
        return handle

    @property
    def is_busy(self) -> bool:
        """Whether any collective has not ended."""
        return bool(self._in_flight)

    def close(self) -> None:
        """End the threads once the communicator is closed; collectives in flight fail.

        A thread that waits for something other than the engine, such as NCCL, is left behind.
        """
        self._down.close()
        self._up.close()
        for handle in list(self._in_flight):
            handle.fail(Error("the process group was destroyed while this was in flight"))

    def _send(
        self,
        handle: Handle,
        former: list[Arrival],
        ready: Event,
        prepare: Prepare,
        call: Call,
        during: Watching,
    ) -> None:
        try:
            with during():
                # Wait here, and not in our streams, where other collectives would wait as well.
                ready.synchronize()
                for each in former:
                    each.lead(handle.staging.down)
                handle.transfer = prepare(handle.staging)
                work = call(handle.transfer.send(), **handle.transfer.arguments)
        except Exception as error:
            self._fail(handle, error)
        else:
            self._up.put(partial(self._receive, handle, handle.transfer, work))

    def _receive(self, handle: Handle, transfer: Transfer, work: sparsewire.Work) -> None:
        try:
            handle.arrival.end(transfer.receive(work.wait()))
            self._in_flight.discard(handle)
        except Exception as error:
            self._fail(handle, error)

    def _fail(self, handle: Handle, error: Exception) -> None:
        """Fail the handle; if this rank cannot stage, abort, so that no other rank waits for it."""
        is_ours = not isinstance(error, Error)
        if is_ours:
            error = Error(f"rank {self._rank} cannot stage a tensor on its device: {error}")
        # A device that has failed for good may raise again and again.
        with suppress(Exception):
            if is_ours:
                self._abort(str(error))
        with suppress(Exception):
            if handle.transfer is not None:
                handle.transfer.drop()
        handle.fail(error)
        self._in_flight.discard(handle)


class Courier:
    """A thread that runs tasks one by one. It starts with the first task. Tasks must not raise."""

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        # A daemon, so that a program that forgets to destroy its groups still ends.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._changing = threading.Lock()
        self._started = False
        self._closed = False

    def put(self, task: Task) -> None:
        """Run `task` after all earlier tasks; after `close`, at once."""
        with self._changing:
            if not self._closed:
                self._start()
                self._tasks.put(task)
                return
        task()

    def close(self) -> None:
        """Run the queued tasks, then end the thread; waits at most 5 s for this. Idempotent."""
        with self._changing:
            self._closed = True
            self._tasks.put(None)
        if self._started and threading.current_thread() is not self._thread:
            self._thread.join(_PATIENCE_S)

    def _start(self) -> None:
        if not self._started:
            self._thread.start()
            self._started = True

    def _run(self) -> None:
        # OpenMP would give this thread a team as large as the machine.
        torch.set_num_threads(1)
        ignore_captures()
        with torch.no_grad():
            while (task := self._tasks.get()) is not None:
                task()
                # Otherwise the objects of the last task would live until the next task comes.
                del task
