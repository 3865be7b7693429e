"""What people send of new weights, as sizes: `RIVALS` are functions of the bits before and after.

Each takes a tensor's bits, uint16 or uint32 in one dimension, of which some changed, and gives
bytes. Names, headers of files and checksums are left out for all.
For what they need: pip install zstandard==0.25.0 zipnn==0.5.4
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[Any]
Rival = Callable[[Bits, Bits], int]

INDEX_BYTES = 4
# The share of a whole tensor from which on DTE sends it whole.
DTE_RATIO = 0.9
VARINT_BITS, VARINT_BYTES = 7, 5


def changes(base: Bits, fresh: Bits) -> tuple[NDArray[np.int64], Bits]:
    """Positions where the bits differ, ascending, and the new bits there."""
    positions = np.flatnonzero(base != fresh)
    return positions, fresh[positions]


def zstd(data: bytes, level: int) -> int:
    import zstandard

    return len(zstandard.compress(data, level))


def coordinates(base: Bits, fresh: Bits) -> int:
    """int32 positions and values, as verl and vLLM's sparse_nccl send them."""
    return int((base != fresh).sum()) * (INDEX_BYTES + base.itemsize)


def dte(base: Bits, fresh: Bits) -> int:
    """AReaL-DTE's codec: int32 positions and values, or the tensor where that is not worth it.

    Source: docs/design.md of areal-project/AReaL-DTE, sections 3 and 5.
    """
    sparse = coordinates(base, fresh)
    return sparse if sparse <= DTE_RATIO * fresh.nbytes else fresh.nbytes


def dte_zstd(base: Bits, fresh: Bits) -> int:
    """The same as AReaL-DTE stages it in files and object stores: by zstd, level 1."""
    positions, values = changes(base, fresh)
    sparse = positions.astype("<i4").tobytes() + values.tobytes()
    return zstd(sparse if len(sparse) <= DTE_RATIO * fresh.nbytes else fresh.tobytes(), 1)


def xor_zstd(level: int) -> Rival:
    """The XOR of all bits by zstd, as slime, miles and ModelExpress write it."""
    return lambda base, fresh: zstd((base ^ fresh).tobytes(), level)


def planes_zstd(base: Bits, fresh: Bits) -> int:
    """The XOR, its first bytes before its second ones and so on, by zstd, level 1."""
    flipped = (base ^ fresh).view(np.uint8).reshape(-1, base.itemsize)
    return zstd(np.ascontiguousarray(flipped.T).tobytes(), 1)


def zipnn(base: Bits, fresh: Bits) -> int:
    """ZipNN's delta mode: the XOR, byte plane by byte plane, by Huffman codes."""
    from zipnn import ZipNN

    dtype = {2: "bfloat16", 4: "float32"}[base.itemsize]
    coder = ZipNN(bytearray_dtype=dtype, delta_compressed_type="byte", threads=1)
    # It writes into what it is given.
    told = bytearray(fresh.tobytes()), bytearray(base.tobytes())
    return len(coder.compress(told[0], delta_second_data=told[1]))


def varint_bytes(numbers: NDArray[np.int64]) -> bytes:
    """Numbers below 2^35 in LEB128: 7 bits a byte, the low ones first; the top bit: more follow."""
    parts = numbers[:, None] >> (VARINT_BITS * np.arange(VARINT_BYTES))
    more = (parts >> VARINT_BITS) > 0
    written = (parts > 0) | (np.arange(VARINT_BYTES) == 0)
    mask = (1 << VARINT_BITS) - 1
    return bytes(((parts & mask) | more << VARINT_BITS)[written].astype(np.uint8))


def gaps_and_values(base: Bits, fresh: Bits) -> bytes:
    """Unchanged elements before each changed one, in LEB128, and the new bits."""
    positions, values = changes(base, fresh)
    return varint_bytes(np.diff(positions, prepend=-1) - 1) + values.tobytes()


def varints(base: Bits, fresh: Bits) -> int:
    """Gaps and values as they are."""
    return len(gaps_and_values(base, fresh))


def varints_zstd(base: Bits, fresh: Bits) -> int:
    """Gaps and values by zstd, level 1, which is close to what PULSE, NeMo-RL and slime send."""
    return zstd(gaps_and_values(base, fresh), 1)


# Fast enough for every version, and what is not.
RIVALS: dict[str, Rival] = {
    "coordinates": coordinates,
    "dte": dte,
    "dte_zstd": dte_zstd,
    "zstd_1": xor_zstd(1),
    "planes_zstd_1": planes_zstd,
    "zipnn": zipnn,
    "varints": varints,
    "varints_zstd_1": varints_zstd,
}
SLOW_RIVALS: dict[str, Rival] = {"zstd_19": xor_zstd(19)}
