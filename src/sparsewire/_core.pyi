"""The native module, typed: what bindings/ exposes of core/comm to the Python layers."""

from collections.abc import Sequence
from typing import Final

DTYPES: Final[dict[str, int]]
"""Codes of "float32", "float64", "float16", "bfloat16", "int32", "int64"."""

OPS: Final[dict[str, int]]
"""Codes of "sum", "avg", "min", "max", "product"."""

WIRE_VERSION: Final[int]
"""Version of the wire format; both ends of a connection must have the same one."""

def simd_level() -> str:
    """Instruction set that the kernels chose at run time: "avx512", "avx2" or "portable"."""

class Failure:
    """Why an operation failed."""

    @property
    def code(self) -> str:
        """One of "peer_lost", "timeout", "protocol", "mismatch", "aborted", "closed"."""
    @property
    def rank(self) -> int:
        """The rank that caused it, or -1 where no rank is to blame."""
    @property
    def op(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def message(self) -> str: ...

class Operation:
    """One submitted collective. Every operation ends: done or failed, never forgotten."""

    @property
    def seq(self) -> int: ...
    def wait(self, timeout: float | None = None) -> bool:
        """Block without the GIL until the end, or for `timeout` seconds; True if it has ended."""
    def done(self) -> bool: ...
    def failure(self) -> Failure | None: ...

class Communicator:
    """The engine of one rank: lanes, progress threads, and the colocated owner."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        links: Sequence[Sequence[int]],
        *,
        dedicated: bool = False,
        block: int = 256,
        window: int = 0,
    ) -> None:
        """Take over connected, authenticated sockets: `links[lane][peer]`.

        Colocated: one entry per rank, -1 at the own rank. Dedicated: one entry per aggregator.
        The communicator owns the descriptors from here on. `window` is in bytes, 0 chooses it.
        """

    def submit(
        self, source: int, target: int, count: int, dtype: int, op: int, timeout: float
    ) -> Operation:
        """Queue one all_reduce of `count` elements at address `source` into address `target`.

        The memory must stay valid until the operation has ended. `timeout` in seconds, 0 for none.
        """

    def next_completed(self) -> Operation | None:
        """Block without the GIL for the next watched operation that ended; None once closed."""

    def watch(self, operation: Operation) -> None:
        """Have `next_completed` return this operation once it has ended (at once if it has)."""

    def abort(self, message: str) -> None:
        """Fail all operations in flight and to come, here and on every peer."""

    def stats(self) -> dict[str, int]: ...
    def close(self, linger: float = 5.0) -> None:
        """Flush what peers still need, say goodbye, stop the threads. Idempotent."""

class Aggregator:
    """Dedicated owner shards for many jobs at once; one progress thread."""

    def __init__(self) -> None: ...
    def add_worker(self, job: int, world_size: int, rank: int, lane: int, fd: int) -> None:
        """Serve one authenticated connection of job `job` (64-bit id). Owns `fd` from here."""

    def serves(self, job: int, world_size: int, rank: int, lane: int) -> bool:
        """Whether this connection is still here."""
    def stats(self) -> dict[str, int]: ...
    def close(self) -> None: ...
