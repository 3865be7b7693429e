"""Sends to and receives from a rank with which gloo is not yet connected.

Pairs of gloo connect at their first call, and one end of each pair blocks until the other end has
made a call, too. A call that starts a send must not block: the receiver may be in a collective that
needs the sender first. So a thread makes the first calls for each peer, in the program's order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import torch

from sparsewire.torch.calls.futures import Callbacks
from sparsewire.torch.calls.work import Together

CALLS = ("send", "recv")
"""Backends' names of these calls; arguments are a list of one tensor, the peer, and a tag."""


class _Late:
    """A backend's work that may not have been made yet."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._work: Future[Any] = Future()

    def make(self) -> bool:
        """Make the call; True if it did not raise."""
        try:
            self._work.set_result(self._call())
        except BaseException as error:
            self._work.set_exception(error)
        return self._work.exception() is None

    def wait(self, timeout: timedelta) -> None:
        self._work.result().wait(timeout)

    def is_completed(self) -> bool:
        if not self._work.done():
            return False
        return self._work.exception() is not None or bool(self._work.result().is_completed())

    def is_success(self) -> bool:
        return self._work.exception() is None and bool(self._work.result().is_success())


class FirstCalls:
    """The first calls of one rank in a group."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._changing = threading.Lock()
        self._connected: set[int] = set()
        self._waiting: dict[int, deque[_Late]] = {}

    def start(
        self, call: Callable[..., Any], tensors: list[torch.Tensor], peer: int, *others: Any
    ) -> Any:
        """The work of `call(tensors, peer, ...)`, or one of ours while `peer` is not connected."""
        late = _Late(lambda: call(tensors, peer, *others))
        with self._changing:
            is_connected = peer in self._connected
            if not is_connected:
                self._enqueue(late, peer)
        return call(tensors, peer, *others) if is_connected else self._work(late, tensors)

    def _work(self, late: _Late, tensors: list[torch.Tensor]) -> Together:
        return Together([late], tensors, self._callbacks)

    def _enqueue(self, late: _Late, peer: int) -> None:
        if peer in self._waiting:
            self._waiting[peer].append(late)
            return
        self._waiting[peer] = deque([late])
        threading.Thread(target=self._make, args=(peer,), daemon=True).start()

    def _make(self, peer: int) -> None:
        """Make the calls that wait for the peer; runs in a thread for this peer."""
        went_well = True
        while (late := self._next(peer, went_well)) is not None:
            went_well = late.make()

    def _next(self, peer: int, is_connected: bool) -> _Late | None:
        with self._changing:
            if self._waiting[peer]:
                return self._waiting[peer].popleft()
            del self._waiting[peer]
            if is_connected:
                self._connected.add(peer)
            return None
