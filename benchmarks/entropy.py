"""The entropy coder of the kernels against the package `constriction`: bytes, and time per symbol.

    pip install constriction==0.5.0; python benchmarks/entropy.py --record

Both code the same symbols by a static model of their own counts, whose cost in bytes is counted:
ours writes the counts into its messages; for the other they are counted at 2 bytes each. Times are
the best of several, taken in turn.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

import constriction
import numpy as np
import records
from best_of import best_of

from sparsewire._core import entropy_decode, entropy_encode

T = TypeVar("T")

COUNT = 1_000_000
ROUNDS = 7
# Symbols as the operators make them: {name: how probable each is}.
SOURCES = {
    "ternary, 10% non-zero": [0.05, 0.9, 0.05],
    "dithering, 4 bits": np.exp(-np.abs(np.arange(-8, 9)) / 2.0),
    "natural: sign and exponent": np.exp(-np.abs(np.arange(-20, 20)) / 6.0),
}


def best(task: Callable[[], T]) -> tuple[float, T]:
    """The shortest time in ns per symbol, and the last result."""
    seconds, result = best_of(ROUNDS, task)
    return seconds / COUNT * 1e9, result


def ours(symbols: np.ndarray, alphabet: int) -> tuple[int, float, float]:
    encode_ns, code = best(lambda: entropy_encode(symbols, alphabet))
    back = np.empty_like(symbols)
    decode_ns, ok = best(lambda: entropy_decode(code, alphabet, back))
    assert ok
    assert (back == symbols).all()
    return len(code), encode_ns, decode_ns


def theirs(symbols: np.ndarray, alphabet: int) -> tuple[int, float, float]:
    message = symbols.astype(np.int32)

    def encode() -> Any:
        share = np.bincount(symbols, minlength=alphabet) / symbols.size
        model = constriction.stream.model.Categorical(share, perfect=False)
        coder = constriction.stream.stack.AnsCoder()
        coder.encode_reverse(message, model)
        return coder.get_compressed(), model

    encode_ns, (words, model) = best(encode)
    decode = constriction.stream.stack.AnsCoder
    decode_ns, back = best(lambda: decode(words).decode(model, symbols.size))
    assert (back == message).all()
    return words.nbytes + 2 * alphabet, encode_ns, decode_ns


def measured(weights: Any, random: np.random.Generator) -> dict[str, tuple[float, float, float]]:
    """Of each coder its bytes over the entropy, and ns to encode and decode a symbol."""
    share = np.asarray(weights) / np.sum(weights)
    symbols = random.choice(share.size, COUNT, p=share).astype(np.uint8)
    found = np.bincount(symbols, minlength=share.size) / COUNT
    ideal = -np.sum(found[found > 0] * np.log2(found[found > 0])) * COUNT / 8
    coders = {"sparsewire": ours, "constriction": theirs}
    sizes = {coder: measure(symbols, share.size) for coder, measure in coders.items()}
    return {coder: (size / ideal, *times) for coder, (size, *times) in sizes.items()}


def row_of(own: Any, other: Any) -> records.Row:
    return {
        "encode_s": own[1] / 1e9,
        "decode_s": own[2] / 1e9,
        "constriction_encode_s": other[1] / 1e9,
        "constriction_decode_s": other[2] / 1e9,
        "more_bytes_share": own[0] / other[0] - 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="keep it in record entropy")
    given = parser.parse_args()
    random = np.random.default_rng(1)
    rows: dict[str, records.Row] = {}
    for name, weights in SOURCES.items():
        found = measured(weights, random)
        rows[name] = row_of(found["sparsewire"], found["constriction"])
        print(name, rows[name], flush=True)
    if given.record:
        for name, row in {**rows, "extremes": extremes(list(rows.values()))}.items():
            records.keep("entropy", name, row)


def extremes(rows: list[records.Row]) -> records.Row:
    """The fastest and the slowest of all sources."""
    times = [name for name in rows[0] if name.endswith("_s")]
    least = {f"fastest_{name}": min(row[name] for row in rows) for name in times}
    most = {f"slowest_{name}": max(row[name] for row in rows) for name in times}
    return {**least, **most, "more_bytes_share": max(row["more_bytes_share"] for row in rows)}


if __name__ == "__main__":
    main()
