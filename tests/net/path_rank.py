"""One rank of test_lab_paths.py: sums without end, until one fails.

Prints a line once all are connected and have summed, and at its end what failed, when, by the clock
that all processes share, and what the communicator tells of its datagrams.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import sparsewire


def main(elements: int, seconds: float) -> None:
    values = np.arange(elements, dtype=np.float32) % 1000
    failure: dict[str, object] = {"type": "", "text": ""}
    with sparsewire.init(timeout=60) as comm:
        comm.all_reduce(values.copy())
        print("ready", flush=True)
        until = time.monotonic() + seconds
        steps, last = 0, 0.0
        try:
            while last == 0.0:
                x = values.copy()
                x[0] = comm.rank == 0 and time.monotonic() > until
                comm.all_reduce(x)
                last, x[0] = float(x[0]), 0.0
                assert np.array_equal(x, comm.world_size * values), "a wrong sum"
                steps += 1
        except sparsewire.Error as error:
            failure = {"type": type(error).__name__, "text": str(error)}
        told = {"at": time.monotonic(), "steps": steps, **failure}
        print(json.dumps({**told, "stats": comm.stats(), "status": str(comm.status())}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
