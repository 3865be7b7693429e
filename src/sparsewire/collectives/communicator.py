"""The public face: a communicator of one rank, and its collectives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from sparsewire._core import Operation
from sparsewire.collectives import dense as dense_collectives
from sparsewire.collectives.arguments import (
    Precision,
    check_dense,
    check_exact,
    check_integer,
    check_out,
    check_seed,
    check_staging,
    codecs,
    dense_code,
    is_on_device,
    view,
)
from sparsewire.collectives.sparse import (
    Lists,
    Request,
    Results,
    call_arguments,
    check_request,
    is_sparse,
    read,
)
from sparsewire.collectives.sparse_sums import SummedLists, brought
from sparsewire.engine import Engine
from sparsewire.options import LinkFigures, Options
from sparsewire.work import Work

if TYPE_CHECKING:  # It imports torch.
    from sparsewire.collectives.staged import StagedCalls


class Communicator:
    """Collectives of one rank with all others. Every rank must make the same calls in one order.

    Made by `init`. Use it as a context manager, or call `close` at the end.
    """

    def __init__(self, engine: Engine, options: Options) -> None:
        # For glue to frameworks, and no part of what users call.
        self.engine = engine
        self._options = options

    @property
    def rank(self) -> int:
        """This rank's number, from 0."""
        return self._options.rank

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self._options.world_size

    @property
    def has_aggregators(self) -> bool:
        """Whether ranks are connected with dedicated aggregators, and not with each other."""
        return self.world_size > 1 and bool(self._options.aggregators)

    @property
    def cuda(self) -> str:
        """What is to serve CUDA tensors in a process group: SPARSEWIRE_CUDA."""
        return self._options.cuda

    @property
    def has_levels(self) -> bool:
        """Whether ranks of a host add up before anything crosses the network: SPARSEWIRE_HOSTS."""
        return self._options.hosts == "levels"

    @property
    def link(self) -> LinkFigures:
        """Figures of the link that algorithms are chosen by, in seconds: measured, or given."""
        return LinkFigures(*self.engine.core.link())

    @property
    def hosts(self) -> int:
        """Hosts whose ranks are added up first; as many as ranks, where each speaks for itself."""
        return self.engine.core.hosts

    def all_reduce(
        self,
        x: Any,
        op: str = "sum",
        out: Any = None,
        async_op: bool = False,
        timeout: float | None = None,
        *,
        algorithm: str = "auto",
        precision: Precision = None,
        result: str | None = None,
        seed: int = 0,
    ) -> Any:
        """Combine `x` of all ranks, element by element.

        Dense `x`: a C-contiguous NumPy array, a torch CPU tensor, or anything with DLPack (CPU) or
        the buffer protocol, of any shape, with dtype float32, float64, float16, bfloat16, int32 or
        int64. All ranks pass the same dtype and number of elements. `op` is "sum", "avg" (not for
        integers), "min", "max" or "product". The result goes into `x`, or into `out` where given:
        an array with the dtype and size of `x`, which may be `x`, but not overlap it otherwise.

        `x` may also be on a GPU, on all ranks alike: a torch tensor of any layout, dense or
        sparse_coo, or a dense array with DLPack or the CUDA array interface, which needs torch.
        The call returns once it is on the host, and in the first of every 32 calls of one size
        once all ranks have come; the current stream waits for the end. `out` is on the same GPU.
        Written and tested on the CPU, never run on CUDA.

        Sparse `x`: a `SparseVector` or a torch sparse_coo tensor, hybrid ones included; duplicate
        positions are summed first. All ranks pass the same dtype and shape; `op` is "sum" or "avg".
        The result is a sparse one of the same kind, or with `result="dense"` a dense array; `out`
        is a dense array to write to. All ranks ask for the same. `algorithm` is "auto", "stream"
        (OmniReduce), or one of SparCML's: "ssar_recursive_double", "ssar_split_allgather",
        "dsar_split_allgather", "ring", "allgather"; see docs/sparse.md.

        `precision` sends float32 values as "bfloat16", "float16", "int8", "int4" or "int2" (QSGD:
        unbiased, rounded at random from `seed`, which all ranks share); a pair gives one for what
        ranks send and one for sums on their way back. NaN and infinities cannot be quantised:
        in sparse input they raise InputError, in dense input what is around them is sent in full.
        `timeout` in seconds replaces the communicator's.

        Returns the array written or the result, or with `async_op` a `Work`; leave the arrays alone
        until it has ended. Raises TypeError and ValueError for arrays it cannot use, which are left
        unchanged; on every rank InputError where a rank's indices do not ascend or are out of
        range; otherwise PeerLost, Timeout, MismatchError, ProtocolError, or Error after abort or
        close.
        """
        if is_sparse(x):
            request = Request("all_reduce", op, 0, algorithm, precision, seed, result, out)
            return self._sparse(x, request, async_op, timeout)
        check_dense(algorithm, result, seed)
        if is_on_device(x):
            work = self._staged_dense(x, op, out, timeout, precision, seed)
        else:
            work = self._dense(x, op, out, timeout, precision, seed, awaited=not async_op)
        return work if async_op else work.wait()

    def all_gather(
        self,
        x: Any,
        async_op: bool = False,
        timeout: float | None = None,
        *,
        precision: Precision = None,
        seed: int = 0,
    ) -> Any:
        """Give every rank the `x` of all ranks: a list in the order of the ranks.

        `x` is sparse, with positions of each rank's own, or a dense array in CPU memory, whose bits
        all ranks get as they are. All ranks pass the same dtype and shape. `precision` is for
        sparse ones. Otherwise like `all_reduce`.
        """
        if not is_sparse(x):
            check_exact(precision, seed)
            call = dense_collectives.all_gather(x, self.rank, self.world_size)
            return self._dense_sum(call, async_op, timeout)
        request = Request("all_gather", precision=precision, seed=seed)
        return self._sparse(x, request, async_op, timeout)

    def reduce_scatter(
        self,
        x: Any,
        op: str = "sum",
        async_op: bool = False,
        timeout: float | None = None,
        *,
        precision: Precision = None,
        seed: int = 0,
    ) -> Any:
        """Combine the `x` of all ranks and give each rank its part, counted from 0.

        Rank r of n gets the positions from r * length // n up to (r + 1) * length // n. `x` is a
        SparseVector, a torch sparse_coo tensor with one sparse dimension, or a dense array in CPU
        memory, of whose elements in a row each rank gets a new, flat array; that costs the bytes of
        an all_reduce. Otherwise like `all_reduce`.
        """
        if not is_sparse(x):
            check_seed(seed)
            place = self.rank, self.world_size
            call = dense_collectives.reduce_scatter(x, op, *place, precision, seed)
            return self._dense_sum(call, async_op, timeout)
        request = Request("reduce_scatter", op, precision=precision, seed=seed)
        return self._sparse(x, request, async_op, timeout)

    def reduce(
        self,
        x: Any,
        op: str = "sum",
        root: int = 0,
        async_op: bool = False,
        timeout: float | None = None,
        *,
        precision: Precision = None,
        seed: int = 0,
    ) -> Any:
        """Combine the `x` of all ranks at rank `root`, into a new array; the others get None.

        `x` is sparse, or a dense array in CPU memory, which costs the bytes of an all_reduce.
        Otherwise like `all_reduce`.
        """
        if not is_sparse(x):
            check_integer("root", root, self.world_size)
            check_seed(seed)
            call = dense_collectives.reduce(x, op, root, self.rank, precision, seed)
            return self._dense_sum(call, async_op, timeout)
        request = Request("reduce", op, root, precision=precision, seed=seed)
        return self._sparse(x, request, async_op, timeout)

    def broadcast(
        self,
        x: Any,
        root: int = 0,
        async_op: bool = False,
        timeout: float | None = None,
        *,
        precision: Precision = None,
        seed: int = 0,
    ) -> Any:
        """Give every rank the `x` of rank `root`.

        The other ranks pass one of the same dtype and shape, such as `SparseVector.empty`; what it
        holds does not matter. A dense `x`, in CPU memory and writable on all ranks, is overwritten
        with the root's bits and returned; until `wait` returns, what it holds is undefined.
        `precision` is for sparse ones. Otherwise like `all_reduce`.
        """
        if not is_sparse(x):
            check_integer("root", root, self.world_size)
            check_exact(precision, seed)
            call = dense_collectives.broadcast(x, root, self.rank)
            return self._dense_sum(call, async_op, timeout)
        request = Request("broadcast", "sum", root, precision=precision, seed=seed)
        return self._sparse(x, request, async_op, timeout)

    def _dense_sum(self, call: dense_collectives.Sum, async_op: bool, timeout: float | None) -> Any:
        work = self.engine.submit(
            call.source.ctypes.data,
            call.target.ctypes.data,
            call.count,
            call.dtype,
            call.op,
            timeout,
            call.codecs,
            call.seed,
            result=call.deliver,
            memory=(call.source, call.target, call.memory),
            awaited=not async_op,
            purpose=call.purpose,
        )
        return work if async_op else work.wait()

    def _dense(
        self,
        x: Any,
        op: str,
        out: Any,
        timeout: float | None,
        precision: Precision,
        seed: int,
        *,
        awaited: bool,
    ) -> Work:
        source = view(x, writable=out is None)
        output = source
        if out is not None:
            output = view(out, writable=True)
            check_out(source, output)
        result = x if out is None else out
        return self.engine.submit(
            source.pointer,
            output.pointer,
            source.size,
            source.dtype,
            dense_code(op, source.dtype),
            timeout,
            codecs(precision, source.dtype, op),
            seed,
            result=lambda: result,
            memory=(source.owner, output.owner),
            awaited=awaited,
        )

    def _staged_dense(
        self, x: Any, op: str, out: Any, timeout: float | None, precision: Precision, seed: int
    ) -> Any:
        def start(on_host: Any, **arguments: Any) -> Work:
            work: Work = self.all_reduce(
                on_host, op, None, True, timeout, precision=precision, seed=seed, **arguments
            )
            return work

        check_staging(x)
        # Sparse vectors are quantised by other rules than dense arrays.
        return self._staged.dense(start, x, out, op, timeout, packs=precision is None)

    def _staged_sparse(self, x: Any, request: Request, timeout: float | None) -> Any:
        if request.out is not None:
            raise ValueError(f"out= is not for tensors on {x.device}: leave it out")

        def start(on_host: Any) -> Work:
            work: Work = self._sparse(on_host, request, True, timeout)
            return work

        return self._staged.sparse(start, x)

    @cached_property
    def _staged(self) -> StagedCalls:
        from sparsewire.collectives.staged import StagedCalls, Stager

        return StagedCalls(
            lambda staging: Stager(self.all_reduce, self.world_size, self.link.byte_s, staging)
        )

    def _sparse(self, x: Any, request: Request, async_op: bool, timeout: float | None) -> Any:
        check_request(request, self.world_size, self.has_aggregators)
        if is_on_device(x):
            work = self._staged_sparse(x, request, timeout)
            return work if async_op else work.wait()
        given = read(x)
        place = self.rank, self.world_size
        runs = "all_reduce" if self.has_aggregators else request.collective
        brings = brought(request, given, *place) if self.has_aggregators else given

        def deliver_from(operation: Operation) -> Callable[[], Any]:
            lists: Lists = operation
            if self.has_aggregators:
                lists = SummedLists(operation, request, given, *place)
            return partial(Results(lists, given).of_rank, *place, request)

        work = self.engine.submit_sparse(
            partial(request.purpose, given.values.dtype),
            deliver_from,
            (brings.indices, given.values.owner, request.out),
            timeout,
            awaited=not async_op,
            **call_arguments(request, brings, runs),
        )
        return work if async_op else work.wait()

    def barrier(self, timeout: float | None = None) -> None:
        """Return once every rank has called it. Raises like `all_reduce`."""
        self._dense_sum(dense_collectives.barrier(), False, timeout)

    def stats(self) -> dict[str, int]:
        """Counters since the start: operations, bytes and segments sent and received, chunks.

        `elements_sent` of the `elements` of this rank's input were sent, by operations that ended
        well and did not go by datagrams.

        `bytes_sent` and `bytes_received` are those of the frames of collectives, with their 32-byte
        headers, but without TCP's and IP's. A frame counts as sent once it is queued for its
        connection, and as received once it is whole. All that belongs to a collective is counted
        before it ends: right behind blocking calls that succeeded on all ranks, and while no other
        is in flight, the sums over the ranks of both are equal. After a failure `bytes_sent` may
        hold what never left.
        """
        return self.engine.stats()

    def status(self) -> dict[str, Any]:
        """What the communicator is at: for whoever asks why a collective takes so long.

        `in_flight` counts collectives; `op`, `seq` and `seconds` tell of the oldest of them (None
        without any), and `operations` of up to 64: `bytes` of the tensor as it is dense, whether
        ranks are `agreeing` on it first, and whom it `waits_for`: ranks that are late, or, where
        only others can tell, those who owe an answer, dedicated aggregators as "aggregator
        host:port" among them; nobody where this rank is at work. `silent` maps
        each rank that has given no sign of life of late to the seconds since the last one.
        `failure` is the text of what broke the communicator, or None.

        `peers` maps those that it ever needed to whether they are `connected`, the seconds since
        something came (`quiet_s`; None where nothing is expected yet), the bytes of their
        connections in all, and those that wait to be sent. `lanes` tells of each lane whether it
        `answers` within a second, of operations and of bytes that wait. `memory` is in bytes, and
        `resident_bytes` is the process's. `datagrams` tells of each aggregator that they go to how
        long nothing was answered that asked for it (`unanswered_s`), the last `error` of the socket
        since a result came ("": none), and the bytes that the system's `receive_buffer` has for
        them. `rates` are those since the last call: bytes and
        operations a second, and the `density` of what was sent: the share of the elements of this
        rank's input that it sent, whole blocks where it sends these; None where nothing was
        counted, as of what goes by datagrams.
        """
        return self.engine.status()

    def abort(self, message: str) -> None:
        """Fail every collective in flight or to come, on all ranks, with an Error that says why."""
        self.engine.core.abort(message)

    def close(self) -> None:
        """Send what peers still need and leave. What is in flight fails. Idempotent.

        Blocks as long as peers go on reading what is left, and 5 s at most where none does.
        """
        self.engine.close()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<sparsewire.Communicator rank {self.rank} of {self.world_size}>"
