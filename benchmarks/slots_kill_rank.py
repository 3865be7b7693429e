"""One rank of slots_kill.py: adds up until another is lost, and prints which, and when, by the
clock that all processes share."""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import sparsewire


def main(elements: int) -> None:
    with sparsewire.init(timeout=60) as comm:
        x = np.ones(elements, np.int32)  # Sums of which wrap, so any number of steps goes.
        print("ready", flush=True)
        try:
            while True:
                comm.all_reduce(x)
        except sparsewire.PeerLost as lost:
            print(json.dumps([lost.rank, time.monotonic()]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
