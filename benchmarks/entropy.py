"""The entropy coder of the kernels against the package `constriction`: bytes, and time per symbol.

    pip install constriction==0.5.0; python benchmarks/entropy.py

Both code the same symbols by a static model of their own counts, whose cost in bytes is counted:
ours writes the counts into its messages; for the other they are counted at 2 bytes each. Times are
the best of several, taken in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import constriction
import numpy as np

from sparsewire._core import entropy_decode, entropy_encode

COUNT = 1_000_000
ROUNDS = 7
# Symbols as the operators make them: {name: how probable each is}.
SOURCES = {
    "ternary, 10% non-zero": [0.05, 0.9, 0.05],
    "dithering, 4 bits": np.exp(-np.abs(np.arange(-8, 9)) / 2.0),
    "natural: sign and exponent": np.exp(-np.abs(np.arange(-20, 20)) / 6.0),
}


def best(task: Callable[[], Any]) -> tuple[float, Any]:
    """The shortest time in ns per symbol, and the last result."""
    times, result = [], None
    for _ in range(ROUNDS):
        start = time.perf_counter()
        result = task()
        times.append(time.perf_counter() - start)
    return min(times) / COUNT * 1e9, result


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


def main() -> None:
    random = np.random.default_rng(1)
    print(
        "| symbols | coder | bytes beyond entropy | encode ns | decode ns |\n|---|---|---|---|---|"
    )
    for name, weights in SOURCES.items():
        share = np.asarray(weights) / np.sum(weights)
        symbols = random.choice(share.size, COUNT, p=share).astype(np.uint8)
        found = np.bincount(symbols, minlength=share.size) / COUNT
        ideal = -np.sum(found[found > 0] * np.log2(found[found > 0])) * COUNT / 8
        for coder, measure in (("sparsewire", ours), ("constriction", theirs)):
            size, encode_ns, decode_ns = measure(symbols, share.size)
            times = f"{encode_ns:.2f} | {decode_ns:.2f}"
            print(f"| {name} | {coder} | {size / ideal - 1:+.2%} | {times} |")


if __name__ == "__main__":
    main()
