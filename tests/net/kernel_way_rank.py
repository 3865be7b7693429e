"""One rank of test_lab_kernel_way.py: tells how init ended, or what a sum took where it did not
fail."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

import sparsewire
from sparsewire.tools.lab.namespace import interface_name


def packets_received() -> int:
    lines = Path("/proc/net/dev").read_text().splitlines()
    return sum(int(line.split(":")[1].split()[1]) for line in lines if interface_name(0) in line)


def outcome() -> dict[str, object]:
    started = time.monotonic()
    try:
        with sparsewire.init(timeout=40) as comm:
            x = np.full(300_000, comm.rank + 1.0, dtype=np.float32)
            before = packets_received()
            comm.all_reduce(x)
            packets = packets_received() - before
            return {"sums": [*{*x.tolist()}], "packets": packets, **comm.stats()}
    except sparsewire.Error as error:
        seconds = time.monotonic() - started
        return {"error": type(error).__name__, "text": str(error), "seconds": seconds}


if __name__ == "__main__":
    print(json.dumps(outcome()))
