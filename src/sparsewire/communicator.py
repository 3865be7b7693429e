"""The public face: a communicator of one rank, its collectives, and the handle of one in flight."""

from __future__ import annotations

import atexit
import contextlib
import math
import multiprocessing.util
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from types import TracebackType
from typing import Any, Literal, TypeVar, overload

import numpy as np

from sparsewire._core import DTYPES, OPS, Operation
from sparsewire._core import Communicator as Core
from sparsewire.arrays import View, check_target, dtype_name, view
from sparsewire.completion import CallbackPool, wait
from sparsewire.errors import Error, Timeout, from_failure
from sparsewire.options import Options, check_timeout, resolve
from sparsewire.rendezvous import Store, default_store
from sparsewire.startup import join

_INTEGERS = {DTYPES["int32"], DTYPES["int64"]}

T = TypeVar("T")


class Work:
    """One collective in flight. It keeps the arrays alive until the engine is done with them."""

    def __init__(
        self, communicator: Communicator, operation: Operation, result: Any, memory: object
    ) -> None:
        self._communicator = communicator
        self._operation = operation
        self._result = result
        self._memory = memory

    def wait(self, timeout: float | None = None) -> Any:
        """Block until the end and return the array written; raises the typed error.

        Raises Timeout after `timeout` seconds; the collective is still in flight then.
        """
        limit = math.inf if timeout is None else timeout
        if not wait(self._operation, limit):
            raise Timeout(
                f"operation {self._operation.seq} has not ended after {timeout} s: "
                "wait longer, or find out which rank has not called it"
            )
        if (error := self.exception()) is not None:
            raise error
        return self._result

    def is_completed(self) -> bool:
        """Whether the collective has ended, well or not."""
        return self._operation.done()

    def exception(self) -> Error | None:
        """Why the collective failed; None if it did not, or has not ended."""
        failure = self._operation.failure()
        return None if failure is None else from_failure(failure)

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Call `callback(self)` on a thread of the callback pool, once the collective has ended.

        It may wait for other collectives. What it raises is logged.
        """

        def call() -> None:
            callback(self)

        self._communicator.watch(self._operation, call)

    def __del__(self) -> None:
        # Nobody waits any more, but the engine still reads and writes the arrays.
        if not self._operation.done():
            self._communicator._hold(self._operation, self._memory)


class Communicator:
    """Collectives of one rank with all others. Every rank must make the same calls in one order.

    Made by `init`. Use it as a context manager, or call `close` at the end.
    """

    def __init__(self, core: Core, options: Options) -> None:
        self._core = core
        self._options = options
        self._pool = CallbackPool(core)
        self._held: deque[tuple[Operation, object]] = deque()
        self._closing = threading.Lock()
        _open.append(self)
        _close_at_exit(os.getpid())

    @property
    def rank(self) -> int:
        return self._options.rank

    @property
    def world_size(self) -> int:
        return self._options.world_size

    @overload
    def all_reduce(
        self,
        x: T,
        op: str = ...,
        out: None = ...,
        async_op: Literal[False] = ...,
        timeout: float | None = ...,
    ) -> T: ...
    @overload
    def all_reduce(
        self,
        x: object,
        op: str = ...,
        *,
        out: T,
        async_op: Literal[False] = ...,
        timeout: float | None = ...,
    ) -> T: ...
    @overload
    def all_reduce(
        self,
        x: object,
        op: str = ...,
        out: object = ...,
        *,
        async_op: bool,
        timeout: float | None = ...,
    ) -> Any: ...
    def all_reduce(
        self,
        x: Any,
        op: str = "sum",
        out: Any = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Combine `x` of all ranks, element by element, into `x`, or into `out` where given.

        `x` and `out`: C-contiguous NumPy arrays, torch CPU tensors, or anything with DLPack (CPU)
        or the buffer protocol, of any shape, with dtype float32, float64, float16, bfloat16, int32
        or int64. All ranks pass the same dtype and number of elements. `op` is "sum", "avg" (not
        for integers), "min", "max" or "product". `out` has the dtype and size of `x`; it may be
        `x`, but not overlap it otherwise. `timeout` in seconds replaces the communicator's.

        Returns the array written, or with `async_op` a `Work`; leave the arrays alone until it has
        ended. Raises TypeError and ValueError for arrays it cannot use, which are left unchanged;
        otherwise PeerLost, Timeout, MismatchError, ProtocolError, or Error after abort or close.
        """
        source = view(x, writable=out is None)
        target = source
        if out is not None:
            target = view(out, writable=True)
            check_target(source, target)
        code = _op_code(op, source)
        operation = self.submit(
            source.pointer, target.pointer, source.size, source.dtype, code, timeout
        )
        result = x if out is None else out
        work = Work(self, operation, result, (source.owner, target.owner))
        return work if async_op else work.wait()

    def barrier(self, timeout: float | None = None) -> None:
        """Return once every rank has called it. Raises like `all_reduce`."""
        self.all_reduce(np.zeros(1, np.int32), timeout=timeout)

    def stats(self) -> dict[str, int]:
        """Counters since the start: operations, bytes and segments sent and received, chunks."""
        return self._core.stats()

    def abort(self, message: str) -> None:
        """Fail every collective in flight or to come, on all ranks, with an Error that says why."""
        self._core.abort(message)

    def submit(
        self,
        source_ptr: int,
        target_ptr: int,
        count: int,
        dtype_code: int,
        op_code: int,
        timeout_s: float | None = None,
    ) -> Operation:
        """Start an all_reduce on raw memory, which must stay valid until the operation has ended.

        Nothing is checked. For glue to frameworks; codes are in `_core.DTYPES` and `_core.OPS`.
        """
        self._release()
        limit = self._options.timeout if timeout_s is None else timeout_s
        check_timeout(limit)
        seconds = 0.0 if math.isinf(limit) else limit
        return self._core.submit(source_ptr, target_ptr, count, dtype_code, op_code, seconds)

    def watch(self, operation: Operation, callback: Callable[[], None]) -> None:
        """Run `callback` on the callback pool once `operation` has ended."""
        self._pool.watch(operation, callback)

    def close(self) -> None:
        """Send what peers still need and leave. What is in flight fails. Idempotent."""
        with self._closing:
            if self in _open:
                self._core.close()
                _open.remove(self)
        self._release()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<sparsewire.Communicator rank {self.rank} of {self.world_size}>"

    def _hold(self, operation: Operation, memory: object) -> None:
        self._held.append((operation, memory))

    def _release(self) -> None:
        """Let go of the arrays of abandoned operations that have ended."""
        # One step at a time is safe against `__del__`, which adds from any thread at any moment.
        with contextlib.suppress(IndexError):
            for _ in range(len(self._held)):
                held = self._held.popleft()
                if not held[0].done():
                    self._held.append(held)


_open: list[Communicator] = []


@cache
def _close_at_exit(process_id: int) -> None:
    """Have this process close what it forgot to; children of multiprocessing run no atexit."""
    atexit.register(_close_all)
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, _close_all, exitpriority=100)


def _close_all() -> None:
    for communicator in list(_open):
        with contextlib.suppress(Exception):
            communicator.close()


def init(
    store: Store | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    timeout: float | None = None,
    lanes: int | None = None,
    aggregators: Sequence[str] | None = None,
) -> Communicator:
    """Connect this process with the other ranks; a collective call.

    `store` is a key-value store that all ranks share, such as one of torch.distributed; without,
    the ranks meet at MASTER_ADDR:MASTER_PORT, or in the directory of SPARSEWIRE_RENDEZVOUS.
    `rank` and `world_size` are those of the launcher where not given. `timeout` in seconds is the
    limit for each collective (default 1800), and at most 300 of them for connecting. `lanes` is
    the number of progress threads, alike on all ranks. `aggregators` are addresses "host:port" of
    dedicated aggregators; without, the ranks share the work of aggregation.

    Raises ValueError for wrong settings, Timeout that names the ranks that are missing,
    MismatchError where ranks have different settings, AuthenticationError, or Error.
    """
    options = resolve(
        os.environ,
        rank=rank,
        world_size=world_size,
        timeout=timeout,
        lanes=lanes,
        aggregators=aggregators,
    )
    # A single rank has nobody to meet and nothing to send, not even to an aggregator.
    links = [[-1]] * options.lanes
    if options.world_size > 1:
        links = join(options, store or default_store(options, os.environ), os.environ)
    core = Core(
        options.rank,
        options.world_size,
        links,
        dedicated=bool(options.aggregators) and options.world_size > 1,
        block=options.block,
        window=options.window,
    )
    return Communicator(core, options)


def _op_code(op: str, source: View) -> int:
    code = OPS.get(op)
    if code is None:
        raise ValueError(f"op {op!r} is not known: use one of {', '.join(OPS)}")
    if op == "avg" and source.dtype in _INTEGERS:
        raise TypeError(
            f'op "avg" of {dtype_name(source.dtype)} would lose fractions: '
            'use "sum" and divide, or pass floating-point numbers'
        )
    return code
