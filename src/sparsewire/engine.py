"""The engine of one communicator, as Python holds it. It issues operations, keeps their memory,
tells their state, and ends with the communicator. `Communicator` is its public face."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from sparsewire._core import Communicator as Core
from sparsewire._core import Operation
from sparsewire.call_site import CallSite, CallSites
from sparsewire.errors import Error, Timeout, from_failure
from sparsewire.lifetime import Inherited, close_at_exit, closes_now, disown_in_child
from sparsewire.options import TIMEOUT_MAX_S, LinkFigures, Options, check_timeout
from sparsewire.purpose import Purpose
from sparsewire.status import Intervals, Status, survey
from sparsewire.work import AbandonedMemory, CallbackPool, NoticeLog, Work


class Engine:
    """The native core of one rank, and all that has to live as long as the core."""

    def __init__(
        self, core: Core, options: Options, release: Callable[[], object] = lambda: None
    ) -> None:
        """`release` lets go of all that the core shares with others, once the core is closed."""
        self.core = core
        self._options = options
        self._release = release
        self._pool = CallbackPool(core)
        self._abandoned = AbandonedMemory()
        self._closing = threading.Lock()
        self._uncounted = dict.fromkeys(core.stats(), 0)
        self._intervals = Intervals(self._uncounted)
        self._sites = CallSites()
        self._notices = NoticeLog(core, options.peer_timeout)
        self._notices.start()
        close_at_exit(self.close)
        disown_in_child(self)

    # --- issuing ---

    def submit(
        self,
        source_ptr: int,
        target_ptr: int,
        count: int,
        dtype_code: int,
        op_code: int,
        timeout_s: float | None = None,
        codec_codes: tuple[int, int] = (0, 0),
        seed: int = 0,
        *,
        result: Callable[[], Any],
        memory: object,
        awaited: bool = False,
        purpose: Purpose | None = None,
    ) -> Work:
        """Start an all_reduce on raw `memory`. `result`, called once, makes the value of `wait`.

        `awaited` promises that the caller waits at once, which saves waking a thread.
        `purpose` is the caller's collective, if the sum carries out another one.

        Arguments are not checked. For glue to frameworks; codes are in `_core.DTYPES`,
        `_core.OPS` and `_core.CODECS`.
        """
        memory_codes = (source_ptr, target_ptr, count, dtype_code, op_code)
        seconds = self._seconds(timeout_s)
        site = self._site()
        if site:
            purpose = (purpose or Purpose())._replace(site=site.number)
        codes = (*codec_codes, seed, awaited, purpose)
        start = partial(self.core.submit, *memory_codes, seconds, *codes)
        return self._issue(start, lambda _: result, memory, site)

    def submit_sparse(
        self,
        purpose_at: Callable[[int], Purpose],
        deliver_from: Callable[[Operation], Callable[[], Any]],
        memory: object,
        timeout_s: float | None,
        awaited: bool,
        **arguments: Any,
    ) -> Work:
        """Start a sparse collective on `memory`. `deliver_from` returns the maker of its result.

        `purpose_at` takes the number of the call's site. `arguments` are the core's, unchecked.
        """
        site = self._site()
        start = partial(
            self.core.submit_sparse,
            **arguments,
            purpose=purpose_at(site.number if site else 0),
            timeout=self._seconds(timeout_s),
            awaited=awaited,
        )
        return self._issue(start, deliver_from, memory, site)

    def _site(self) -> CallSite | None:
        """The place of the call, in debug mode; else None."""
        return CallSite.here() if self._options.debug else None

    def _seconds(self, timeout: float | None) -> float:
        """The time limit of a call, as the core takes it; 0.0 stands for no limit."""
        self._abandoned.release()
        limit = self._options.timeout if timeout is None else timeout
        check_timeout(limit)
        return 0.0 if limit > TIMEOUT_MAX_S else limit

    def _issue(
        self,
        start: Callable[[], Operation],
        deliver_from: Callable[[Operation], Callable[[], Any]],
        memory: object,
        site: CallSite | None,
    ) -> Work:
        """Start an operation on `memory`, which is kept even if this call is interrupted."""

        def handle(operation: Operation) -> Work:
            if site:
                self._sites.note(operation.seq, site)
            return Work(self, operation, deliver_from(operation), memory)

        return self._abandoned.issue(start, memory, handle)

    # --- for handles of operations ---

    def wait_for(self, operation: Operation, timeout: float) -> bool:
        """Block for at most `timeout` seconds; True if the operation has ended."""
        return self.core.wait(operation, timeout)

    def failure_of(self, operation: Operation) -> Error | None:
        """The error of an operation that failed; None if it succeeded or has not ended."""
        failure = operation.failure()
        if failure is None:
            return None
        return from_failure(failure, self.first_operation, self._sites.of(operation.seq))

    def not_ended(self, operation: Operation, timeout: float | None) -> Timeout:
        """The error to raise if an operation is still in flight after `timeout` seconds."""
        return Timeout(
            f"operation {operation.seq - self.first_operation} has not ended after {timeout} s: "
            "wait longer, or find out which rank has not called it"
        )

    def watch(self, operation: Operation, callback: Callable[[], None]) -> None:
        """Run `callback` on the callback pool once `operation` has ended."""
        self._pool.watch(operation, callback)

    def hold(self, operation: Operation, memory: object) -> None:
        """Keep `memory` until `operation` has ended, for a handle that is deleted earlier."""
        self._abandoned.hold(operation, memory)

    def check_process(self) -> None:
        """Raises Error in a child that was forked after the communicator was made."""
        if isinstance(self.core, Inherited):
            self.core.refuse()

    # --- its state ---

    @property
    def link(self) -> LinkFigures:
        """See `Communicator.link`."""
        return LinkFigures(*self.core.link())

    def stats(self) -> dict[str, int]:
        """Counters since counting started: see `Communicator.stats`."""
        counters = self.core.stats()
        return {name: count - self._uncounted[name] for name, count in counters.items()}

    def status(self) -> Status:
        """See `Communicator.status`."""
        told = self.survey()
        return {**told, "rates": self._intervals.until_now(told["totals"])}

    def survey(self) -> Status:
        """The status for `sparsewire top`: it has `totals`, as `stats` counts them, not rates."""
        told = survey(self.core, self.first_operation)
        identity = {"rank": self._options.rank, "world_size": self._options.world_size}
        return {**identity, **told, "totals": self.stats()}

    def start_counting(self) -> None:
        """Leave the operations of the set-up out of `stats` and of the numbers in errors."""
        self._uncounted = self.core.stats()
        self._intervals = Intervals(self.stats())
        self._notices.first_operation = self.first_operation

    @property
    def first_operation(self) -> int:
        """The core's number of the operation that counts as number 0."""
        return self._uncounted["operations"]

    # --- its end ---

    def close(self) -> None:
        """See `Communicator.close`."""
        with self._closing:
            was_open = closes_now(self.close)
            if was_open:
                self.core.close()
                self._notices.join()
                self._release()
        if was_open:
            # Not under the lock, because a callback may close the communicator, too.
            self._pool.join()
        self._abandoned.release()

    def disown(self) -> None:
        """In a forked child: leave the core to the parent. Later calls raise Error."""
        self.core.disown()
        inherited = Inherited("communicator")
        self.core, self._pool = cast(Core, inherited), cast(CallbackPool, inherited)
        self._closing = threading.Lock()
