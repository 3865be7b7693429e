"""One rank of a job under attack: takes steps until rank 0's clock ends it, and checks each sum.

    python attacked_rank.py SECONDS ELEMENTS

Prints a line when it begins, and at its end when each step began, by the clock that all processes
share, how long it took, and some counters after it; and all counters of the communicator.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import sparsewire

COUNTED = "window", "rtt_us", "datagrams_sent", "retransmissions"


def main(seconds: float, elements: int) -> None:
    steps = []
    with sparsewire.init(timeout=60) as comm:
        print("ready", flush=True)
        until = time.monotonic() + seconds
        values = np.arange(elements, dtype=np.float32) % 1000
        last, sums = 0.0, comm.world_size * values
        while last == 0.0:
            x = values.copy()
            x[0] = comm.rank == 0 and time.monotonic() > until
            started = time.monotonic()
            comm.all_reduce(x)
            took, stats = time.monotonic() - started, comm.stats()
            steps.append((started, took, {name: stats[name] for name in COUNTED}))
            last, x[0] = float(x[0]), 0.0
            assert np.array_equal(x, sums), "a wrong sum"
        print(json.dumps({"steps": steps, "stats": comm.stats()}))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
