"""How long a reader waits: a change written to 4 GB of bfloat16, prepared beforehand or not.

    python benchmarks/weights_pause.py --record

A share of the weights has moved by one representable number. All is done by one thread, and takes
12 GB of memory; times are the best of several, in s that a processor worked.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import records
from numpy.typing import NDArray

from sparsewire._core import DELTA_CHUNK, write_prepared
from sparsewire.weights.versions.chunks import apply_chunk, encode_chunk, prepare_chunk

CHUNKS = 4_000_000_000 // (2 * DELTA_CHUNK)
ROUNDS = 5
SHARE = 0.01
Chunks = NDArray[np.uint8]


def model(random: np.random.Generator) -> Chunks:
    """Chunks of weights: one, turned round, since drawing all takes minutes."""
    values = random.standard_normal(DELTA_CHUNK, np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    chunks = np.empty((CHUNKS, DELTA_CHUNK), np.uint16)
    for index, chunk in enumerate(chunks):
        chunk[:] = np.roll(bits, 977 * index)
    return chunks.view(np.uint8)


def code_of(chunk: Chunks, random: np.random.Generator) -> bytes:
    fresh = chunk.view(np.uint16).copy()
    moves = random.random(len(fresh), np.float32) < SHARE
    fresh[moves] += random.choice(np.array([1, 65535], np.uint16), moves.sum())
    return encode_chunk(chunk, fresh.view(np.uint8), 2, True)[0]


def timed(rounds: int, task: Callable[[int], bool]) -> float:
    """Seconds of a processor for all chunks, in the best round."""
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        assert all(map(task, range(CHUNKS)))
        times.append(time.thread_time() - start)
    return min(times)


def measured(random: np.random.Generator) -> records.Row:
    chunks = model(random)
    codes = [code_of(chunk, random) for chunk in chunks]
    prepared: list[bytes] = []

    def prepare(index: int) -> bool:
        prepared.append(prepare_chunk(codes[index], chunks[index], 2, True) or b"")
        return True

    prepare_s = timed(1, prepare)
    applied = chunks.copy()
    apply_s = timed(1, lambda index: apply_chunk(codes[index], applied[index], 2, True))
    write_s = timed(ROUNDS, lambda index: write_prepared(prepared[index], chunks[index], 2))
    assert (applied == chunks).all()
    return {
        "model_bytes": chunks.nbytes,
        "changed_share": SHARE,
        "code_bytes": sum(map(len, codes)),
        "prepared_bytes": sum(map(len, prepared)),
        "prepare_s": prepare_s,
        "apply_s": apply_s,
        "write_prepared_s": write_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", action="store_true", help="write a row of the record weights")
    arguments = parser.parse_args()
    row = measured(np.random.default_rng(0))
    print(*(f"{name} {value:.4g}" for name, value in row.items()), sep="\n")
    if arguments.record:
        records.keep("weights", "pause/4GB", row)


if __name__ == "__main__":
    main()
