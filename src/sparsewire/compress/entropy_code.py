"""A static entropy code for symbols of a small alphabet: rANS, or plain bits where that is shorter.

Duda, Asymmetric numeral systems: entropy coding combining speed of Huffman coding with compression
rate of arithmetic coding, arXiv 1311.2540. The number of symbols is not part of the code.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress.bit_fields import pack_fields, unpack_fields
from sparsewire.compress.errors import CompressError
from sparsewire.compress.message import Reader, number_bytes

_PLAIN, _RANS = 0, 1
_SCALE_BITS = 16
_SCALE = 1 << _SCALE_BITS
_LOW = 1 << 24
_EMIT_BITS = 24 + 8 - _SCALE_BITS
_STATE_BYTES = 4


def encode_symbols(symbols: NDArray[np.uint8], alphabet: int) -> bytes:
    """The code of symbols below `alphabet` (1 to 256), shape (count,).

    Raises CompressError for symbols that are not below it.
    """
    counts = np.bincount(symbols, minlength=1)
    _check_alphabet(alphabet)
    if counts.size > alphabet:
        raise CompressError(f"symbol {counts.size - 1} is not in an alphabet of {alphabet}")
    width = (alphabet - 1).bit_length()
    table = _table_bytes(counts)
    if len(table) + _STATE_BYTES + _entropy(counts) / 8 >= symbols.size * width / 8:
        return bytes([_PLAIN]) + pack_fields(symbols, width)
    return bytes([_RANS]) + table + _rans_encode(symbols, _frequencies(counts))


def decode_symbols(payload: bytes, count: int, alphabet: int) -> NDArray[np.uint8]:
    """The `count` symbols of a code, shape (count,); raises CompressError if it is malformed."""
    _check_alphabet(alphabet)
    reader = Reader(payload)
    mode = reader.take(1)[0]
    if mode == _PLAIN:
        symbols = unpack_fields(reader.rest(), count, (alphabet - 1).bit_length())
        if count and symbols.max() >= alphabet:
            raise CompressError("malformed message: a symbol is not in the alphabet")
        return symbols.astype(np.uint8)
    if mode != _RANS:
        raise CompressError(f"malformed message: there is no entropy code {mode}")
    counts = _read_table(reader, count, alphabet)
    return _rans_decode(reader.rest(), count, _frequencies(counts))


def _check_alphabet(alphabet: int) -> None:
    if not 1 <= alphabet <= 256:
        raise CompressError(f"an alphabet has 1 to 256 symbols, not {alphabet}")


def _entropy(counts: NDArray[np.int64]) -> float:
    """Bits of the symbols under their own frequencies."""
    used = counts[counts > 0]
    return float(np.sum(used * np.log2(used.sum() / used)))


def _table_bytes(counts: NDArray[np.int64]) -> bytes:
    """How often each symbol up to the largest occurs; the last follows from the total."""
    return bytes([counts.size - 1]) + b"".join(number_bytes(n) for n in counts[:-1].tolist())


def _read_table(reader: Reader, total: int, alphabet: int) -> NDArray[np.int64]:
    last = reader.take(1)[0]
    counts = [reader.number() for _ in range(last)]
    counts.append(total - sum(counts))
    if last >= alphabet or counts[-1] < 1:
        raise CompressError("malformed message: the table of symbols does not fit")
    return np.array(counts, np.int64)


def _frequencies(counts: NDArray[np.int64]) -> list[int]:
    """Counts scaled to the sum 2^16, at least 1 where a symbol occurs; the same on all machines."""
    exact: list[int] = counts.tolist()
    total, spare = sum(exact), _SCALE - sum(n > 0 for n in exact)
    scaled = [1 + n * spare // total if n else 0 for n in exact]
    scaled[exact.index(max(exact))] += _SCALE - sum(scaled)
    return scaled


def _starts(frequencies: list[int]) -> list[int]:
    return [0, *accumulate(frequencies[:-1])]


def _rans_encode(symbols: NDArray[np.uint8], frequencies: list[int]) -> bytes:
    starts = _starts(frequencies)
    limits = [frequency << _EMIT_BITS for frequency in frequencies]
    state, reverse = _LOW, bytearray()
    for symbol in symbols[::-1].tolist():
        frequency, limit = frequencies[symbol], limits[symbol]
        while state >= limit:
            reverse.append(state & 255)
            state >>= 8
        state = (state // frequency << _SCALE_BITS) + state % frequency + starts[symbol]
    return state.to_bytes(_STATE_BYTES, "little") + bytes(reverse[::-1])


def _rans_decode(payload: bytes, count: int, frequencies: list[int]) -> NDArray[np.uint8]:
    starts = _starts(frequencies)
    owner = np.repeat(np.arange(len(frequencies), dtype=np.uint8), frequencies).tobytes()
    state = int.from_bytes(payload[:_STATE_BYTES], "little")
    following = iter(payload[_STATE_BYTES:])
    symbols = bytearray(count)
    for i in range(count):
        slot = state & (_SCALE - 1)
        symbols[i] = symbol = owner[slot]
        state = frequencies[symbol] * (state >> _SCALE_BITS) + slot - starts[symbol]
        while state < _LOW:
            byte = next(following, None)
            if byte is None:
                raise CompressError("malformed message: the entropy code ends too early")
            state = state << 8 | byte
    if state != _LOW or next(following, None) is not None:
        raise CompressError("malformed message: the entropy code does not end where it should")
    return np.frombuffer(bytes(symbols), np.uint8)
