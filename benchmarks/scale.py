"""How many ranks fit on one machine: seconds of `init`, memory of a rank, and its connections.

python benchmarks/scale.py --ranks 256 --json scale-256.json

All ranks are up, and have imported everything, before the clock starts: they await each other by
files. Memory is the unique set size: pages that no other process has, and, of rings in shared
memory, those that a process maps, halved, as two processes share each. The interpreter's, measured
before `init`, is taken off, and the tensor's where there is one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

DEADLINE_S = 600.0


def memory() -> int:
    """Bytes that this process would give back: private pages, and its share of shared ones."""
    total = 0
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("Pss_Anon", "Pss_Shmem"):
            total += 1024 * int(value.split()[0])
    return total


def connections() -> int:
    """Sockets of this process that are connected with another rank."""
    count = 0
    for entry in os.scandir("/proc/self/fd"):
        try:
            count += os.readlink(entry.path).startswith("socket:")
        except OSError:
            continue
    return count


def meet(place: Path, event: str, rank: int, ranks: int) -> None:
    """Return once all ranks have come to `event`; rank 0 looks for all of them."""
    (place / f"{event}-{rank}").touch()
    everybody = place / event
    deadline = time.monotonic() + DEADLINE_S
    while not everybody.exists():
        if rank == 0 and all((place / f"{event}-{one}").exists() for one in range(ranks)):
            everybody.touch()
        if time.monotonic() > deadline:
            raise SystemExit(f"rank {rank} waited in vain for {event}")
        time.sleep(0.02)


def be_rank(place: Path, rank: int, ranks: int, elements: int, groups: int, results: Any) -> None:
    import numpy as np

    import sparsewire
    from sparsewire.meeting.store_place import FileStore

    store = FileStore(place / "rendezvous", DEADLINE_S)
    found: dict[str, float] = {}
    meet(place, "imported", rank, ranks)
    before = memory()
    start = time.perf_counter()
    with sparsewire.init(store, rank=rank, world_size=ranks, timeout=DEADLINE_S) as comm:
        found["init_s"] = time.perf_counter() - start
        meet(place, "met", rank, ranks)
        time.sleep(1.0)
        found["idle_bytes"] = memory() - before
        found["idle_connections"] = connections()
        more = [
            sparsewire.init(
                FileStore(place / f"group-{number}", DEADLINE_S),
                rank=rank,
                world_size=ranks,
                timeout=DEADLINE_S,
            )
            for number in range(groups)
        ]
        for group in more:
            group.all_reduce(np.ones(100_000, np.float32))
        found["connections"] = connections()
        meet(place, "measured", rank, ranks)
        if elements:
            x = np.ones(elements, np.float32)
            held = memory()
            meet(place, "filled", rank, ranks)
            start = time.perf_counter()
            comm.all_reduce(x)
            found["all_reduce_s"] = time.perf_counter() - start
            found["all_reduce_bytes"] = memory() - held + found["idle_bytes"]
            assert (x == ranks).all()
        meet(place, "done", rank, ranks)
        for group in more:
            group.close()
    results.put(found)


def run(ranks: int, elements: int, groups: int) -> dict[str, float]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["numpy", "sparsewire", "sparsewire.meeting.connect"])
    results = context.Queue()
    with tempfile.TemporaryDirectory(prefix="sparsewire-scale-") as directory:
        place = Path(directory)
        processes = [
            context.Process(
                target=be_rank, args=(place, rank, ranks, elements, groups, results), daemon=True
            )
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        found = [results.get(timeout=DEADLINE_S) for _ in processes]
        for process in processes:
            process.join()
    slowest = {name: max(one[name] for one in found) for name in found[0]}
    slowest["median_init_s"] = statistics.median(one["init_s"] for one in found)
    return slowest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--elements", type=int, default=0, help="float32 of an all_reduce")
    parser.add_argument("--groups", type=int, default=0, help="more communicators of all ranks")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    figures = run(given.ranks, given.elements, given.groups)
    for name, value in figures.items():
        print(f"{name:20} {value:,.6g}")
    if given.json:
        from sparsewire.measure.conditions import conditions

        record = {
            "command": " ".join(sys.argv[1:]),
            "conditions": conditions(),
            "figures": {f"{given.ranks} ranks": figures},
        }
        given.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
