"""One call in flight in the engine: its parts, one for each collective that it consists of."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import torch

from sparsewire.completion import wait
from sparsewire.errors import Error

if TYPE_CHECKING:
    from sparsewire import Communicator
    from sparsewire._core import Operation


class Part(Protocol):
    """One collective of the call: what it works on, and the tensors that it writes."""

    @property
    def operation(self) -> Operation: ...

    @property
    def tensors(self) -> list[torch.Tensor]: ...

    @property
    def memory(self) -> object:
        """What must live until the operation has ended."""

    def settle(self) -> None:
        """Bring the result to the tensors, after the operation has ended well."""


class EngineCall:
    """What a `Work` and its future share."""

    def __init__(self, communicator: Communicator, notice: Callable[[Error], None]) -> None:
        """`notice` is told of the error each time that one is found."""
        self.communicator = communicator
        self._notice = notice
        self._parts: list[Part] = []
        self._settling = threading.Lock()
        self._settled = False
        self._unsettled: Exception | None = None  # why a result could not be brought back

    def add(self, part: Part) -> None:
        """Add a part that has been started, and that keeps its memory itself."""
        self._parts.append(part)

    def start(
        self, submit: Callable[[], Operation], part_of: Callable[[Operation], Part], memory: object
    ) -> None:
        """Add an operation that works on `memory`, which stays whatever interrupts this."""
        self.communicator.issue(submit, lambda operation: self.add(part_of(operation)), memory)

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [tensor for part in self._parts for tensor in part.tensors]

    def done(self) -> bool:
        """Whether every operation has ended; if so, the results are in the tensors."""
        if not all(part.operation.done() for part in self._parts):
            return False
        self._settle()
        return True

    def error(self) -> Exception | None:
        """Why the first failed operation failed, or why a result could not be brought back."""
        for part in self._parts:
            error = self.communicator.failure_of(part.operation)
            if error is not None:
                self._notice(error)
                return error
        return self._unsettled

    def wait(self, timeout: float = math.inf) -> None:
        """Block until the end; raises `Timeout` after `timeout` seconds, or why it failed.

        After `timeout` the operations are still in flight, and still write into the tensors.
        """
        self.communicator.check_process()
        deadline = time.monotonic() + timeout
        for part in self._parts:
            if not wait(part.operation, deadline - time.monotonic()):
                raise self.communicator.not_ended(part.operation, timeout)
        if (error := self.error()) is None:
            self._settle()
            error = self._unsettled
        if error is not None:
            raise error

    def finish(self) -> list[torch.Tensor]:
        """Block until the end and return the tensors; raises why it failed."""
        self.wait()
        return self.tensors

    def _settle(self) -> None:
        """Bring results to where they belong, once; keeps why the first that fails does."""
        with self._settling:
            if self._settled:
                return
            self._settled = True
            for part in self._parts:
                if part.operation.failure() is None:
                    self._settle_part(part)

    def _settle_part(self, part: Part) -> None:
        try:
            part.settle()
        except Exception as error:
            self._unsettled = self._unsettled or error

    def __del__(self) -> None:
        # Nobody waits any more, but the engine still reads and writes the memory.
        for part in self._parts:
            if not part.operation.done():
                self.communicator.hold(part.operation, part.memory)
