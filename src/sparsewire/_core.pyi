"""The native module, typed: the parts of core/ that bindings/ exposes to the Python layers."""

from collections.abc import Sequence
from typing import Any, Final, Literal, overload

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Memory = Array | bytes | memoryview

DTYPES: Final[dict[str, int]]
"""Codes of "float32", "float64", "float16", "bfloat16", "int32", "int64"."""

OPS: Final[dict[str, int]]
"""Codes of "sum", "avg", "min", "max", "product"."""

CODECS: Final[dict[str, int]]
"""Codes of "raw", "bfloat16", "float16", "int8", "int4", "int2"."""

COLLECTIVES: Final[dict[str, int]]
"""Codes of "all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "barrier"."""

ALGORITHMS: Final[dict[str, int]]
"""Codes of "auto", "stream" and SparCML's algorithms."""

FORMS: Final[dict[str, int]]
"""Codes of "auto", "sparse" and "dense": the form of results that a caller wants."""

ROW_MIN: Final[int]
ROW_MAX: Final[int]
"""The least and most elements of a row that travels as one."""

CHUNK_ELEMENTS: Final[int]
"""Elements of a chunk of a long vector."""

DENSE_BLOCKS: Final[float]
DENSE_ELEMENTS: Final[float]
"""Where these shares of a sample's blocks and elements are not zero, the engine does not scan."""

WIRE_VERSION: Final[int]
"""Version of the wire format; both ends of a connection must have the same one."""

def simd_level() -> str:
    """Instruction set that the kernels chose at run time: "avx512", "avx2" or "portable"."""

def interfaces() -> list[tuple[str, list[str], int | None, int | None]]:
    """Name, addresses, MTU in bytes and speed in Mbit/s of each network interface that this
    thread's namespace has; None for a value that the system does not tell. Raises RuntimeError.
    """

def predict(
    algorithm: int,
    length: int,
    element_bytes: int,
    elements: Sequence[int],
    hosts: int,
    latency_s: float,
    byte_s: float,
    merge_s: float,
) -> float:
    """Seconds that a sparse all_reduce is predicted to take; each rank names its `elements`.

    Ranks of a host are added up first; `hosts` is the number of hosts, or that of the ranks.
    """

def choose(
    length: int,
    element_bytes: int,
    elements: Sequence[int],
    hosts: int,
    latency_s: float,
    byte_s: float,
    merge_s: float,
) -> int:
    """Code of the algorithm that is predicted to be the fastest."""

# Compression operators, over contiguous arrays: values are float32 or float64, symbols uint8, and
# bitmaps uint64 words with bit i % 64 of word i / 64 for element i. The last argument is written,
# unless a code is returned. Vectors are cut into blocks of `block` elements; the last block may be
# shorter. Functions with a `key` are pure. Values must be finite. All raise ValueError for numbers
# and sizes that do not fit, and BufferError for memory that is not contiguous, or not writable.

def entropy_encode(symbols: Array, alphabet: int) -> bytes:
    """The entropy code of symbols below `alphabet` (1 to 256)."""

def entropy_decode(code: Memory, alphabet: int, symbols: Array) -> bool:
    """Fill `symbols`; False if the bytes are no code of as many symbols."""

def dither(values: Array, block: int, norms: Array, levels: int, key: int, symbols: Array) -> None:
    """Round values at random to `levels` (1 to 127) equal parts of their block's norm, and zero.

    A symbol is the signed level plus `levels`. One level is ternary quantisation.
    """

def undither(symbols: Array, block: int, norms: Array, levels: int, values: Array) -> None: ...
def natural_dither(
    values: Array, block: int, norms: Array, levels: int, key: int, symbols: Array
) -> None:
    """The same with levels at zero and the norm times 2^(1 - levels), ..., 1/2, 1."""

def natural_undither(
    symbols: Array, block: int, norms: Array, levels: int, values: Array
) -> None: ...
def nearest_multiples(values: Array, block: int, levels: int, steps: Array, symbols: Array) -> None:
    """Round values to the nearest multiple of their block's step, up to `levels` (2^n - 1, to 127).

    Steps are the least powers of two, from the smallest normal number on, that the largest
    magnitudes allow. Steps and symbols are written; a symbol is the signed level plus `levels`.
    """

def take_centroids(values: Array, block: int, magnitudes: Array, symbols: Array) -> None:
    """Split each block's magnitudes in two classes, for the least squared error of their means.

    Writes two means for each block, the low one first, and symbols: 2 for zero, 3 and 4 for low and
    high, 1 and 0 for these with a minus. Zeros belong to no class.
    """

def centroid_values(symbols: Array, block: int, magnitudes: Array, values: Array) -> None: ...
def nearest_powers(values: Array, block: int, levels: int, scales: Array, symbols: Array) -> None:
    """Round values to the nearest of zero and the scale times 2^(1 - levels), ..., 1/2, 1.

    Scales, powers of two, are written, and symbols, which are those of `natural_dither`. `levels`
    is from 1 to 64.
    """

def transform_chunks(
    values: Array, side: int, matrix: Array, transposed: Array, result: Array
) -> None:
    """Multiply chunks of `side` rows of as many elements by a matrix of float64 from both sides.

    Zeros are behind the end of `values`, and what is behind the end of `result` is dropped.
    """

def dither_difference(
    values: Array,
    subtracted: Array,
    block: int,
    levels: int,
    key: int,
    norms: Array,
    symbols: Array,
) -> bool:
    """Write the l2 norms of the blocks of values - subtracted, and the symbols that `dither` makes.

    False, with nothing of use written, if blocks are longer than 2048, or if a norm is neither zero
    nor a normal number.
    """

def natural_dither_difference(
    values: Array,
    subtracted: Array,
    block: int,
    levels: int,
    key: int,
    norms: Array,
    symbols: Array,
) -> bool:
    """The same with `natural_dither`."""

def follow_levels(
    symbols: list[Array],
    norms: list[Array],
    own: int,
    block: int,
    levels: int,
    rate: float,
    shift: Array,
    mean_shift: Array,
    gradient: Array,
) -> None:
    """DIANA's step from the vectors that all ranks sent, coded as `dither` does it.

    With m their mean, added up in order, the gradient becomes `mean_shift` + m. Then `mean_shift`
    moves by `rate` m, and `shift` by `rate` times the vector that rank `own` sent.
    """

def follow_natural_levels(
    symbols: list[Array],
    norms: list[Array],
    own: int,
    block: int,
    levels: int,
    rate: float,
    shift: Array,
    mean_shift: Array,
    gradient: Array,
) -> None:
    """The same for codes of `natural_dither`."""

def multiples(symbols: Array, block: int, steps: Array, levels: int, values: Array) -> None: ...
def natural_compress(values: Array, key: int, codes: Array) -> None:
    """Round values at random to powers of two.

    A code, uint16, is twice the exponent as the type stores it, plus 1 if negative; 0 for a zero.
    Values above the largest power of two may get the exponent of infinity.
    """

def natural_decompress(codes: Array, base: int, values: Array) -> None:
    """Write the values of codes, uint16 or uint8, after `base` is added to those not zero."""

def take_signs(values: Array, symbols: Array) -> None:
    """Write 0 for negative values, 1 for zeros, 2 for positive ones."""

def first_not_finite(values: Array) -> int:
    """Position of the first NaN or infinity, or the number of values."""

def block_norms(values: Array, block: int, power: float, norms: Array) -> None:
    """Write the norm of each block, `power` from 1 to inf; infinity if the type is too small."""

def block_means(values: Array, block: int, means: Array) -> None:
    """Write the mean magnitude of each block."""

def count_marked(bitmap: Array, count: int, block: int) -> int:
    """Elements in the blocks, of a vector of `count`, whose bit is set."""

def gather_blocks(elements: Array, block: int, bitmap: Array, packed: Array) -> None:
    """Copy the blocks whose bit is set, one after another; elements have 2, 4 or 8 bytes."""

def add_and_measure_blocks(values: Array, added: Array, block: int, norms: Array) -> None:
    """Add to the values, and write the l2 norm of each block of the sum, as `block_norms` does."""

def add_marked_blocks(values: Array, block: int, bitmap: Array, total: Array) -> None:
    """Add packed blocks to those of `total` whose bit is set."""

def subtract_into(
    start: Array, now: Array, added: Array | None, beta: float, out: Array
) -> tuple[float, float]:
    """out = start - now + beta * added, float32; the norms of start - now, and of `out`."""

def scale_in_place(values: Array, factor: float) -> float:
    """Multiply float32 values; the norm of the products, infinite or NaN if one of them is."""

def average_marked(
    bitmaps: list[Array], values: list[Array], count: int, block: int, bitmap: Array, means: Array
) -> int:
    """Write the mean of vectors of `count` elements in the blocks that any has; return its size."""

def feed_marked_back(
    gradient: Array,
    residual: Array,
    block: int,
    own: Array,
    sent: Array,
    bitmap: Array,
    means: Array,
) -> None:
    """Make the residual the gradient less what was `sent` at `own`, and the gradient the means."""

def scatter_blocks(packed: Array, block: int, bitmap: Array, elements: Array) -> None:
    """Copy packed blocks to the places whose bit is set, and leave the others."""

def mark_reaching(values: Array, magnitude: float, bitmap: Array) -> int:
    """Set the bits of the values of at least this magnitude, and return how many."""

def mark_bernoulli(count: int, probability: float, key: int, bitmap: Array) -> int:
    """Set each bit with this probability, a multiple of 2^-32, and return how many are set."""

def mark_rand_k(count: int, k: int, key: int, bitmap: Array) -> None:
    """Set k bits, drawn without replacement."""

def mark_top_k(values: Array, k: int, bitmap: Array) -> None:
    """Set the bits of the k values of largest magnitude, of equal ones the first."""

def mark_visible(values: Array, parameters: Array, rate: float, bitmap: Array) -> int:
    """Set the bits where parameter - rate * value is another bfloat16, and return how many."""

def take_top_k_of_spans(
    values: Array, added: Array | None, span: int, k: int, bitmap: Array, kept: Array
) -> int:
    """Set the bits of each span's k largest values, but not of zeros, and write these to `kept`.

    `added` is added to the values first. Returns how many there are.
    """

def encode_positions(bitmap: Array, count: int, k: int) -> bytes:
    """The code of a bitmap with k set bits."""

def decode_positions(code: Memory, count: int, k: int, bitmap: Array) -> bool:
    """Write the bitmap; False if the bytes are no code of k of `count` positions."""

class Failure:
    """Why an operation failed."""

    @property
    def code(self) -> str:
        """One of "peer_lost", "timeout", ...: the names of ErrorCode in core/base/error.hpp."""
    @property
    def rank(self) -> int:
        """The rank that caused it, or -1 if no rank is to blame."""
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
    def take_sparse(self, list: int = 0) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """A list of the results, once: its indices, and the bytes of its values.

        Indices are int32 if those of the call are, and the vector is no longer than that allows.
        """
    def write_dense(self, out: int, list: int = 0) -> None:
        """Write every element of a list of the results."""
    def finish(self) -> None:
        """Fill the chunks of a dense output to which no result went with zeros."""

class Mesh:
    """The connections of one process with the ranks of a job: lanes and their threads.

    It asks for a peer to be connected once there is something to send to it, or to hear from it.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        *,
        lanes: int,
        peer_timeout: float,
        start_timeout: float,
        memory: int,
        neighbours: int,
        processors: Sequence[int],
    ) -> None:
        """Connected with no peer yet. Limits in seconds.

        A peer without a sign of life for `peer_timeout` is lost, and a group that others have must
        be here within `start_timeout`. `memory` in bytes is dealt out to the connections, of which
        `neighbours` may be through shared memory. `processors` has one for each lane, or none
        if the system may choose.
        """

    def calls_fd(self) -> int:
        """A descriptor that is readable while there are peers to be called; -1 after `close`."""

    def take_calls(self) -> list[int]:
        """The peers that are to be connected, on every lane. Each is named once."""

    def note_call(self, peer: int) -> None:
        """A peer is being called, and has to answer from now on."""

    def adopt(self, lane: int, peer: int, fd: int) -> None:
        """Take over the connected, non-blocking socket `fd` of a peer."""

    def give_up(self, peer: int, why: str) -> None:
        """A peer that is not connected is lost, and with it every group that it is in."""

    def fail_group(self, group: int, members: Sequence[int], rank: int, why: str) -> None:
        """End the group number `group`, which this process failed to join as `rank` of it.

        `members` are the mesh's ranks in it; each is told as soon as it is connected. Without any,
        each rank that sends a frame of the group is told. Nothing happens if the group is here,
        or has ended.
        """

    def connections(self) -> int:
        """Peers that are connected."""

    def is_whole(self) -> bool:
        """Whether no connection was ever lost."""

    def disown(self) -> None:
        """In a forked child: close this process's copies of the descriptors."""

    def close(self) -> None:
        """Close all connections and end the threads, once all communicators have left."""

class Timeline:
    """A file for trace viewers that shows what operations did and when; its own thread writes."""

    def __init__(self, fd: int, rank: int, title: str) -> None:
        """Take over an empty file, for this rank's process; viewers show it under `title`."""
    def refused(self) -> int:
        """Events that were left out, as they came faster than they could be written."""
    def flush(self) -> None:
        """Return once all events noted before are in the file."""

class Communicator:
    """The engine of one rank: its part of lanes, and the colocated owner."""

    @overload
    def __init__(
        self,
        mesh: Mesh,
        group: int,
        members: Sequence[int],
        rank: int,
        *,
        block: int = 256,
        window: int = 0,
        hosts: Sequence[int] = (),
        timeline: Timeline | None = None,
    ) -> None:
        """A group of the ranks `members` of a mesh, under a number that no other group has."""

    @overload
    def __init__(
        self,
        rank: int,
        world_size: int,
        sockets: Sequence[Sequence[int]],
        *,
        dedicated: bool = False,
        block: int = 256,
        window: int = 0,
        peer_timeout: float = 30.0,
        hosts: Sequence[int] = (),
        datagrams: Sequence[Sequence[int]] = (),
        datagram_bytes: int = 0,
        datagram_keys: Sequence[tuple[bytes, bytes]] = (),
        job: int = 0,
        epoch: int = 0,
        fixed_point: bool = False,
        disturb: str = "",
        worker: tuple[int, int] = (0, 0),
        in_kernel: bool = False,
        rack: tuple[int, int] = (0, 1),
        greeting: tuple[int, int] = (0, 0),
        timeline: Timeline | None = None,
    ) -> None:
        """Take over connected, authenticated `sockets[lane][peer]`, even if it raises.

        Colocated: one entry per rank, -1 at the own rank. Dedicated: one entry per aggregator.
        The communicator owns the descriptors from here on. `window` is in bytes; 0: the engine
        chooses. A peer without a sign of life for `peer_timeout` seconds is lost. With `datagrams`,
        sockets by flow and aggregator, dense sums go by these. `worker` is this rank's number among
        an aggregator's workers, and how many they are; `rack` is the same for the aggregator at its
        parent. `greeting` is the number of the last greeting, and the block that greetings ask of a
        kernel, or 0. ValueError for a wrong `disturb`.
        """

    def submit(
        self,
        source: int,
        out: int,
        count: int,
        dtype: int,
        op: int,
        timeout: float,
        segment_codec: int = 0,
        result_codec: int = 0,
        seed: int = 0,
        awaited: bool = False,
        purpose: tuple[int, int, int, int, int, int] | None = None,
    ) -> Operation:
        """Queue one all_reduce of `count` elements at address `source` into address `out`.

        The memory must stay valid until the operation has ended. `timeout` in seconds, 0 for none.
        If it is `awaited`, the caller is about to `wait`, and no thread is woken for it.
        `purpose` is what the program asked for, which ranks compare: collective, root, dtype,
        elements, form and site; None for an all_reduce.
        """

    def submit_sparse(
        self,
        *,
        indices: int,
        is_wide: bool,
        named: int,
        values: int,
        length: int,
        row: int,
        dtype: int,
        op: int,
        collective: int,
        algorithm: int,
        root: int,
        unit: int,
        segment_codec: int,
        result_codec: int,
        seed: int,
        out: int,
        purpose: tuple[int, int, int, int, int, int],
        timeout: float,
        awaited: bool = False,
    ) -> Operation:
        """Queue a sparse collective of `named` indices and a value, or `row` values, for each.

        Indices are int64 if `is_wide`, else int32. `length` counts positions, and `unit` those of a
        row that a reduce_scatter must not divide. `out` is the address of a dense array for the
        result, or 0 to keep it in the operation. All memory must stay valid until the operation has
        ended. `timeout` in seconds, 0 for none. `awaited` and `purpose` as in `submit`; the form
        in `purpose` is the one that the caller wants of a result that is kept.
        """

    def wait(self, operation: Operation, timeout: float) -> bool:
        """Like `operation.wait`, and do the engine's work in the calling thread meanwhile."""

    def set_link(self, latency_s: float, byte_s: float, merge_s: float) -> None:
        """Choose algorithms by these figures, the same on every rank, from now on."""

    def link(self) -> tuple[float, float, float]:
        """The figures in use: latency_s, byte_s, merge_s."""

    @property
    def hosts(self) -> int:
        """Hosts whose ranks are added up first; as many as ranks, if each speaks for itself."""

    def next_completed(self) -> Operation | None:
        """Block without the GIL for the next watched operation that ended; None once closed."""

    def watch(self, operation: Operation) -> None:
        """Have `next_completed` return this operation once it has ended (at once if it has)."""

    def abort(self, message: str) -> None:
        """Fail all operations in flight and to come, here and on every peer."""

    def stats(self) -> dict[str, int]: ...
    def survey(self, patience: float) -> dict[str, Any]:
        """Of one moment: `in_flight`, how many operations; `operations`, the oldest 64 of them:
        (name, number, seconds, bytes, whether ranks agree); `silent`, a list of (peer, rank or -1,
        seconds); `failure`, a text or None.

        And `lanes`, each a moment later, None if it does not answer within `patience` seconds: the
        peers that it waits for, by operation; its peers: (name, rank or -1, whether it is
        connected, seconds since something came or None, bytes sent, bytes received, bytes queued);
        and its paths of datagrams: (address, seconds waited in vain, the socket's error or "",
        bytes of the receive buffer).
        """

    def next_notice(self) -> tuple[str, str, float, bool, tuple[str, int, float] | None] | None:
        """Block without the GIL until a peer falls silent, or is heard again, or datagrams have
        trouble; None once closed.

        (trouble or "", peer, seconds of silence, whether it is over, oldest operation in flight)
        """

    def close(self, linger: float = 5.0) -> None:
        """Flush what peers still need, say goodbye, stop the threads. Idempotent."""

    def disown(self) -> None:
        """In a forked child: close its copies of the descriptors. Never use the object again."""

def greeting(
    key: bytes,
    kind: int,
    job: int,
    epoch: int,
    worker: int,
    size: int,
    party: tuple[int, int, int, int, int, int],
    adds_only_integers: bool = False,
    number: int = 0,
    block: int = 0,
    flow: int = 0,
) -> bytes:
    """A sealed datagram of `size` bytes: kind 4 for a hello, 5 for a welcome, 6 for a note that a
    process has heard a hello which its kernel is to answer.

    `party`: workers at the aggregator that is greeted, ranks of the job, which of its parent's
    workers the aggregator is, how many these are, bytes of the job's largest datagram, flows of
    each worker, of which this is `flow`. `number` comes back with the answer. A kernel's answer is
    as long as a result with `block` values.
    """

def read_greeting(
    key: bytes, data: bytes
) -> tuple[int, int, int, int, bool, tuple[int, int, int, int, int, int], int, int, int] | None:
    """Kind, job, epoch, worker, `adds_only_integers`, party, number, block, flow; None if this is
    no greeting under the key."""

def datagram_job(data: bytes) -> int | None:
    """The job that a datagram names; None if this is no datagram."""

DELTA_CHUNK: Final[int]
"""Elements of a chunk of weights at most."""

def encode_delta(base: Memory, fresh: Memory, width: int, floating: bool) -> tuple[bytes, int]:
    """The code of a chunk of elements of `width` bytes over its base, and how many changed.

    `floating` says that their bits are those of floating-point numbers. Raises ValueError.
    """

def apply_delta(code: Memory, chunk: Memory, width: int, floating: bool) -> bool:
    """Make the base in `chunk` the new version; False, and no change, for what is no code of it."""

def is_delta(code: Memory, count: int, width: int, floating: bool) -> bool:
    """Whether these bytes are the code of a chunk of `count` elements."""

def prepare_delta(code: Memory, base_chunk: Memory, width: int, floating: bool) -> bytes | None:
    """What `write_prepared` makes the base the new version with; None for what is no code of it.

    It takes 4 + `width` bytes a change, and never more than 4 bytes beyond the chunk.
    """

def prepare_between(base_chunk: Memory, fresh: Memory, width: int) -> bytes:
    """The same of both versions of a chunk. Raises ValueError."""

def write_prepared(prepared: Memory, chunk: Memory, width: int) -> bool:
    """Write the new bits of a prepared change; False, and no change, for what is none of it.

    Writing it twice changes nothing more.
    """

def delta_changes(
    code: Memory, count: int, width: int, floating: bool
) -> tuple[Literal["same", "steps", "values", "whole"], NDArray[np.uint32] | None, Array] | None:
    """What the code of a chunk of `count` elements says; None for what is no code of it.

    The form; the ascending positions of the elements that changed, for steps and values; and for
    steps by how many representable numbers each moved, as int64, for values their new bytes and
    for whole those of all elements, as uint8, `width` bytes an element.
    """

class Aggregator:
    """Dedicated owners for many jobs at once; one progress thread."""

    def __init__(
        self,
        *,
        memory: int,
        job_memory: int,
        window: int,
        grace: float,
        datagrams: int = -1,
        disturb: str = "",
        offload: bool = True,
    ) -> None:
        """Limits in bytes: of all jobs, of one, of a window; seconds that a hello may take.

        Owns `datagrams`, a bound socket, and disturbs what crosses it by `disturb` (ValueError if
        that is no disturbance). With `offload`, the system cuts messages into datagrams and puts
        them together, if it can.
        """
    def add_worker(
        self,
        job: int,
        world_size: int,
        rank: int,
        lane: int,
        fd: int,
        epoch: int = 0,
        keys: tuple[bytes, bytes] | None = None,
    ) -> None:
        """Serve one authenticated connection of job `job` (64-bit id). Owns `fd` from here.

        The job's datagrams are of that epoch, and sealed with the keys, of 32 bytes each: those to
        the aggregator with the first, and those to the workers with the second.
        """

    def serves(self, job: int, world_size: int, rank: int, lane: int) -> bool:
        """Whether this connection is still here."""
    def stats(self) -> dict[str, int]: ...
    def slots(self) -> dict[int, dict[str, int]]:
        """Counters of each job that sends datagrams."""
    def close(self) -> None: ...

class RackAggregator:
    """Slots for many jobs at once, between a rack's workers and a parent; one progress thread."""

    def __init__(
        self, *, memory: int, job_memory: int, workers: int, parent: int, disturb: str = ""
    ) -> None:
        """Limits in bytes: of all jobs, of one.

        Owns both sockets, one bound for the workers' datagrams, one connected to the parent, and
        disturbs what crosses them by `disturb` (ValueError if that is no disturbance).
        """
    def add_job(
        self,
        job: int,
        world_size: int,
        epoch: int,
        keys: tuple[bytes, bytes],
        above: tuple[bytes, bytes],
    ) -> None:
        """Take the job's datagrams, unless the job is here already.

        Those of the rack's workers are sealed with `keys`, and those of the parent's with `above`:
        each up and down, of 32 bytes.
        """
    def remove_job(self, job: int) -> None: ...
    def stats(self) -> dict[str, int]: ...
    def slots(self) -> dict[int, dict[str, int]]:
        """Counters of each job."""
    def close(self) -> None: ...
