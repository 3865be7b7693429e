"""The public face: a communicator of one rank, and its collectives."""

from __future__ import annotations

from typing import Any

from sparsewire.collectives.calls import Calls
from sparsewire.collectives.request import Request
from sparsewire.collectives.views import Precision
from sparsewire.engine import Engine
from sparsewire.options import LinkFigures, Options


class Communicator:
    """Collectives of one rank with all others. Every rank must make the same calls in one order.

    Made by `init`. Use it as a context manager, or call `close` at the end.
    """

    def __init__(self, engine: Engine, options: Options) -> None:
        # For glue to frameworks, and no part of what users call.
        self.engine = engine
        self._options = options
        dedicated = options.world_size > 1 and bool(options.aggregators)
        self._calls = Calls(engine, options.rank, options.world_size, dedicated)

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
        return self._calls.dedicated

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
        return self.engine.link

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
        request = Request("all_reduce", x, op, 0, precision, seed, out, algorithm, result)
        return self._calls.run(request, async_op, timeout)

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
        request = Request("all_gather", x, precision=precision, seed=seed)
        return self._calls.run(request, async_op, timeout)

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
        request = Request("reduce_scatter", x, op, 0, precision, seed)
        return self._calls.run(request, async_op, timeout)

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
        request = Request("reduce", x, op, root, precision, seed)
        return self._calls.run(request, async_op, timeout)

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
        request = Request("broadcast", x, "sum", root, precision, seed)
        return self._calls.run(request, async_op, timeout)

    def barrier(self, timeout: float | None = None) -> None:
        """Return once every rank has called it. Raises like `all_reduce`."""
        self._calls.wait_for_all(timeout)

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
