"""The public interface: a communicator of one rank, and its collectives."""

from __future__ import annotations

from typing import Any

from sparsewire.collectives.calls import Calls
from sparsewire.collectives.request import Request
from sparsewire.collectives.views import Precision
from sparsewire.engine import Engine
from sparsewire.options import LinkFigures, Options


class Communicator:
    """Collectives of one rank with all others. Every rank must make the same calls in one order.

    `init` makes it. Use it as a context manager, or call `close` at the end.
    """

    def __init__(self, engine: Engine, options: Options) -> None:
        # For glue to frameworks only, not for users.
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
        """The number of ranks."""
        return self._options.world_size

    @property
    def has_aggregators(self) -> bool:
        """Whether ranks are connected with dedicated aggregators, and not with each other."""
        return self._calls.dedicated

    @property
    def cuda(self) -> str:
        """The path of CUDA tensors in a process group: SPARSEWIRE_CUDA."""
        return self._options.cuda

    @property
    def has_levels(self) -> bool:
        """Whether ranks of a host add up before anything crosses the network: SPARSEWIRE_HOSTS."""
        return self._options.hosts == "levels"

    @property
    def link(self) -> LinkFigures:
        """Measured or given figures of the link, in seconds, by which algorithms are chosen."""
        return self.engine.link

    @property
    def hosts(self) -> int:
        """The number of hosts that add up their ranks first; `world_size` if no host does."""
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
        integers), "min", "max" or "product". The result is written to `x`, or to `out` if given:
        an array with the dtype and size of `x`. `out` may be `x`, but not overlap it otherwise.

        On all ranks alike, `x` may also be on a GPU: a torch tensor, dense with any strides or
        sparse_coo, or a dense array with DLPack or the CUDA array interface, which needs torch.
        The call does not return before `x` is on the host. The first of every 32 calls of one dtype
        and size also waits until all ranks have called. The current stream waits for the result.
        `out` is on the same GPU. Written and tested on the CPU, never run on CUDA.

        Sparse `x`: a `SparseVector` or a torch sparse_coo tensor, hybrid ones included; duplicate
        positions are summed first. All ranks pass the same dtype and shape; `op` is "sum" or "avg".
        The result is sparse and of the kind of `x`, or with `result="dense"` a dense array; `out`
        is a dense array to write to. All ranks ask for the same kind of result. `algorithm` is
        "auto", "stream" (OmniReduce), or one of SparCML's: "ssar_recursive_double",
        "ssar_split_allgather", "dsar_split_allgather", "ring", "allgather"; see docs/sparse.md.

        `precision` sends float32 values as "bfloat16", "float16", "int8", "int4" or "int2" (QSGD:
        unbiased, rounded at random from `seed`, which all ranks share). A pair of names is for the
        values that ranks send, and for the sums that come back. NaN and infinities cannot be
        quantised: in sparse input they raise InputError, and in dense input their segment is sent
        in full. `timeout` in seconds replaces the communicator's.

        Returns the array written or the result, or with `async_op` a `Work`. Do not touch the
        arrays until the collective has ended. Raises TypeError and ValueError for unusable
        arguments, and leaves arrays unchanged then. Raises InputError on every rank if the indices
        of one rank do not ascend or are out of range. Otherwise raises PeerLost, Timeout,
        MismatchError, ProtocolError, or Error after abort or close.
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

        `x` is sparse, with positions that may differ between ranks, or a dense array in CPU memory,
        whose bits all ranks get unchanged. All ranks pass the same dtype and shape. `precision` is
        for sparse `x` only. Otherwise like `all_reduce`.
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
        """Combine the `x` of all ranks and give each rank its part, with positions from 0.

        Rank r of n gets the positions from r * length // n up to (r + 1) * length // n. `x` is a
        SparseVector, a torch sparse_coo tensor with one sparse dimension, or a dense array in CPU
        memory. A dense `x` counts as flat: each rank gets a new, flat array, and the call sends the
        bytes of an all_reduce. Otherwise like `all_reduce`.
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
        """Combine the `x` of all ranks at rank `root`, into a new array; other ranks get None.

        `x` is sparse, or a dense array in CPU memory. With a dense `x`, the call sends the bytes of
        an all_reduce. Otherwise like `all_reduce`.
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

        The other ranks pass an `x` of the same dtype and shape, such as `SparseVector.empty`; its
        values do not matter. A dense `x`, in CPU memory and writable on all ranks, is overwritten
        with the root's bits and returned; until `wait` returns, its content is undefined.
        `precision` is for sparse `x` only. Otherwise like `all_reduce`.
        """
        request = Request("broadcast", x, "sum", root, precision, seed)
        return self._calls.run(request, async_op, timeout)

    def barrier(self, timeout: float | None = None) -> None:
        """Return once every rank has called it. Raises like `all_reduce`."""
        self._calls.wait_for_all(timeout)

    def stats(self) -> dict[str, int]:
        """Counters since the start: operations, bytes and segments sent and received, chunks.

        Of the `elements` of this rank's input, `elements_sent` were sent. Both count operations
        that succeeded and did not go by datagrams.

        `bytes_sent` and `bytes_received` count the frames of collectives, with their 32-byte
        headers, but without headers of TCP and IP. A frame counts as sent once it is queued for its
        connection, and as received once it is whole. A collective counts all its frames before it
        ends. So after blocking calls that succeeded on all ranks, while no other collective is in
        flight, the sums of both over the ranks are equal. After a failure, `bytes_sent` may include
        bytes that never left.
        """
        return self.engine.stats()

    def status(self) -> dict[str, Any]:
        """The state of the communicator, which shows why a collective takes so long.

        `in_flight` counts collectives. `op`, `seq` and `seconds` describe the oldest of them (None
        if there is none), and `operations` up to 64 of them: the `bytes` of the tensor as a dense
        one, whether ranks are still `agreeing` on the operation, and the peers that it `waits_for`.
        These are the late ranks, or, if only other peers know them, the peers that owe an answer,
        dedicated aggregators as "aggregator host:port" among them; none if this rank is at work.
        `silent` maps each rank without a recent sign of life to the seconds since its last sign.
        `failure` is the text of the error that broke the communicator, or None.

        `peers` maps each peer that was ever needed to its state: whether it is `connected`, the
        seconds since something came from it (`quiet_s`; None if nothing is expected yet), the total
        bytes of its connections, and the bytes that wait to be sent. `lanes` has for each lane
        whether it `answers` within a second, and the operations and bytes that wait. `memory` is in
        bytes; `resident_bytes` are the process's. `datagrams` has for each aggregator that
        datagrams go to: the seconds for which results were awaited in vain (`unanswered_s`), the
        last `error` of the socket since a result came ("": none), and the bytes of the system's
        `receive_buffer`. `rates` cover the time since the last call: bytes and operations per
        second, and the `density`, the share of the elements of this rank's input that it sent,
        whole blocks if it sends blocks. The `density` is None if nothing was counted, for example
        because operations went by datagrams.
        """
        return self.engine.status()

    def abort(self, message: str) -> None:
        """Fail every collective in flight or to come, on all ranks, with an Error that says why."""
        self.engine.core.abort(message)

    def close(self) -> None:
        """Send the bytes that peers still need, and leave. Collectives in flight fail. Idempotent.

        Blocks while peers go on reading these bytes, and at most 5 s if no peer reads.
        """
        self.engine.close()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<sparsewire.Communicator rank {self.rank} of {self.world_size}>"
