"""Carries requests out: each becomes an operation of the engine, on the host or staged."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from sparsewire._core import Operation
from sparsewire.collectives.dense import Sum, barrier, sum_for
from sparsewire.collectives.request import Form, Request, form_of
from sparsewire.collectives.sparse import Lists, Results, call_arguments, read
from sparsewire.collectives.sparse_sums import SummedLists, brought
from sparsewire.engine import Engine
from sparsewire.work import Work

if TYPE_CHECKING:  # The module imports torch.
    from sparsewire.collectives.staged import StagedCalls


class Calls:
    """The collectives of one rank. With `dedicated` aggregators, ranks are not connected."""

    def __init__(self, engine: Engine, rank: int, world_size: int, dedicated: bool) -> None:
        self._engine = engine
        self._rank = rank
        self._world_size = world_size
        self.dedicated = dedicated

    def run(self, request: Request, async_op: bool, timeout: float | None) -> Any:
        """The result of a request, or with `async_op` its handle.

        Raises TypeError and ValueError for unusable requests, before anything is sent.
        """
        form = form_of(request.x)
        request.check(form, self._world_size, self.dedicated)
        work = self._start(request, form, timeout, awaited=not async_op)
        return work if async_op else work.wait()

    def wait_for_all(self, timeout: float | None) -> None:
        """Return once all ranks have called this."""
        self._add_up(barrier(), timeout, awaited=True).wait()

    def _start(self, request: Request, form: Form, timeout: float | None, awaited: bool) -> Any:
        if form is Form.DEVICE_SPARSE:
            return self._staged.sparse(request, timeout)
        if request.stages_dense(form):
            return self._staged.dense(request, timeout)
        start = self._start_sparse if form is Form.SPARSE else self._start_dense
        return start(request, timeout, awaited)

    def _start_dense(self, request: Request, timeout: float | None, awaited: bool = False) -> Work:
        return self._add_up(sum_for(request, self._rank, self._world_size), timeout, awaited)

    @cached_property
    def _staged(self) -> StagedCalls:
        from sparsewire.collectives.staged import StagedCalls, Stager

        def all_reduce(x: Any, op: str = "sum", timeout: float | None = None) -> Any:
            return self.run(Request("all_reduce", x, op), False, timeout)

        byte_s = self._engine.link.byte_s
        return StagedCalls(
            self._start_dense,
            self._start_sparse,
            lambda staging: Stager(all_reduce, self._world_size, byte_s, staging),
        )

    def _add_up(self, call: Sum, timeout: float | None, awaited: bool) -> Work:
        return self._engine.submit(
            call.source,
            call.target,
            call.elements,
            call.dtype,
            call.op,
            timeout,
            call.codecs,
            call.seed,
            result=call.deliver,
            memory=call.memory,
            awaited=awaited,
            purpose=call.purpose,
        )

    def _start_sparse(self, request: Request, timeout: float | None, awaited: bool = False) -> Work:
        given = read(request.x)
        ranks = self._rank, self._world_size
        # Aggregators only add up, so another collective becomes a sum.
        runs = "all_reduce" if self.dedicated else request.collective
        brings = brought(request, given, *ranks) if self.dedicated else given

        def deliver_from(operation: Operation) -> Callable[[], Any]:
            lists: Lists = operation
            if self.dedicated:
                lists = SummedLists(operation, request, given, *ranks)
            return partial(Results(lists, given).of_rank, *ranks, request)

        return self._engine.submit_sparse(
            partial(request.purpose, given.values.dtype),
            deliver_from,
            (brings.indices, given.values.owner, request.out),
            timeout,
            awaited=awaited,
            **call_arguments(request, brings, runs),
        )
