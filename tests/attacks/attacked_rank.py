"""One rank of a job under attack: takes steps until rank 0's clock ends it, and checks each sum.

    python attacked_rank.py SECONDS ELEMENTS

Prints when each step began, by the clock that all processes share, and how long it took; and the
communicator's counters.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import sparsewire


def main(seconds: float, elements: int) -> None:
    steps = []
    with sparsewire.init(timeout=60) as comm:
        until = time.monotonic() + seconds
        values = np.arange(elements, dtype=np.float32) % 1000
        last, sums = 0.0, comm.world_size * values
        while last == 0.0:
            x = values.copy()
            x[0] = comm.rank == 0 and time.monotonic() > until
            started = time.monotonic()
            comm.all_reduce(x)
            steps.append((started, time.monotonic() - started))
            last, x[0] = float(x[0]), 0.0
            assert np.array_equal(x, sums), "a wrong sum"
        print(json.dumps({"steps": steps, "stats": comm.stats()}))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
