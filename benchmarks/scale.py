"""How many ranks fit on one machine: seconds of `init`, memory of a rank, and its connections.

    python benchmarks/scale.py --ranks 256 --record

All ranks are up, and have imported everything, before the clock starts: they await each other by
files. Memory is the proportional set size of what belongs to no file: a ring in shared memory
counts half in each of the two processes that map it. The interpreter's, measured before `init`, is
taken off. Tensors are files that all ranks map, as 256 of them would not fit: all have the same
values, so that the same result comes to the same place. Processor seconds are those of
all ranks together, which other programs change less than they change times.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import records

DEADLINE_S = 600.0
WATCH_EVERY_S = 0.5
BLOCK = 256


def memory() -> int:
    """Bytes that this process would give back: private pages, and its share of shared ones."""
    total = 0
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("Pss_Anon", "Pss_Shmem"):
            total += 1024 * int(value.split()[0])
    return total


def connections() -> int:
    """Ranks that this process is connected with."""
    from sparsewire.meeting.mesh import shared_mesh

    return sum(shared_mesh.connections())


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


class PeakWatch(threading.Thread):
    """Looks at this process's memory now and then, and keeps the most that it found."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ends = threading.Event()
        self._most = 0
        self.start()

    def run(self) -> None:
        while not self._ends.wait(WATCH_EVERY_S):
            self._most = max(self._most, memory())

    def stop(self) -> int:
        self._ends.set()
        self.join()
        return max(self._most, memory())


def make_tensors(place: Path, elements: int, density: float) -> None:
    import numpy as np

    blocks = np.random.default_rng(0).random(elements // BLOCK) < density
    x = np.repeat(blocks, BLOCK).astype(np.float32)
    x.tofile(place / "tensor")
    np.zeros_like(x).tofile(place / "result")


def repeated(comm: Any, place: Path, rank: int, ranks: int, rounds: int) -> dict[str, float]:
    """Seconds of small dense collectives: of all ranks, and of two while all others are idle."""
    import numpy as np

    import sparsewire
    from sparsewire.meeting.places.store_place import FileStore

    found = {}
    for name, elements in (("4_kib", 1 << 10), ("1_mib", 1 << 18)):
        times = timed(
            comm, np.ones(elements, np.float32), rounds, partial(meet, place, name, rank, ranks)
        )
        found[f"{name}_s"], found[f"{name}_cpu_s"] = times
    meet(place, "repeated", rank, ranks)
    found["pair_s"] = found["pair_cpu_s"] = 0.0
    if rank < 2:
        with sparsewire.init(FileStore(place / "pair"), rank=rank, world_size=2) as pair:
            times = timed(pair, np.ones(1 << 10, np.float32), 100 * rounds, lambda: None)
            found["pair_s"], found["pair_cpu_s"] = times
    return found


def timed(comm: Any, x: Any, rounds: int, begin: Callable[[], None]) -> tuple[float, float]:
    """Seconds of an all_reduce, by the clock and of this process's processors."""
    comm.all_reduce(x)
    begin()
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        comm.all_reduce(x)
    return (time.perf_counter() - start) / rounds, (time.process_time() - cpu) / rounds


def be_rank(
    place: Path, rank: int, ranks: int, elements: int, groups: int, rounds: int, results: Any
) -> None:
    import numpy as np

    import sparsewire
    from sparsewire.meeting.places.store_place import FileStore

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
            x = np.memmap(place / "tensor", np.float32, "r+")
            out = np.memmap(place / "result", np.float32, "r+")
            watch = PeakWatch()
            meet(place, "mapped", rank, ranks)
            start = time.perf_counter()
            comm.all_reduce(x, out=out, timeout=DEADLINE_S)
            found["all_reduce_s"] = time.perf_counter() - start
            found["all_reduce_connections"] = connections()
            meet(place, "reduced", rank, ranks)
            start, cpu = time.perf_counter(), time.process_time()
            comm.all_reduce(x, out=out, timeout=DEADLINE_S)
            found["again_s"] = time.perf_counter() - start
            found["again_cpu_s"] = time.process_time() - cpu
            found["all_reduce_bytes"] = watch.stop() - before
            assert (out[:: elements // 100] == ranks * x[:: elements // 100]).all()
        found |= repeated(comm, place, rank, ranks, rounds) if rounds else {}
        meet(place, "done", rank, ranks)
        for group in more:
            group.close()
    results.put(found)


def parts(ranks: int) -> dict[str, float]:
    """What one rank does to meet so many others: seconds and bytes of each record."""
    from sparsewire.meeting.places.place import join_records, split_records
    from sparsewire.meeting.startup import Record, record_of
    from sparsewire.options import Address, Options

    own = record_of(Options(1, ranks))
    records = [
        replace(
            own,
            identity=f"host-{rank // 8}" + 80 * "x",
            addresses=[Address("10.0.0.1", 1024 + rank)],
            door=32 * "d",
        )
        for rank in range(ranks)
    ]
    joined = join_records([record.encode() for record in records])
    start = time.perf_counter()
    read = [Record.decode(one, own.settings) for one in split_records(joined)]
    spent = time.perf_counter() - start
    assert read == records
    return {"decode_s": spent / ranks, "record_bytes": len(joined) / ranks}


def run(ranks: int, elements: int, density: float, groups: int, rounds: int) -> dict[str, float]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["numpy", "sparsewire", "sparsewire.meeting.connect"])
    results = context.Queue()
    with tempfile.TemporaryDirectory(prefix="sparsewire-scale-") as directory:
        place = Path(directory)
        if elements:
            make_tensors(place, elements, density)
        processes = [
            context.Process(
                target=be_rank,
                args=(place, rank, ranks, elements, groups, rounds, results),
                daemon=True,
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
    for name in found[0]:
        if name.endswith("_cpu_s"):
            slowest[name] = sum(one[name] for one in found)
    return slowest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--elements", type=int, default=0, help="float32 of an all_reduce")
    parser.add_argument("--density", type=float, default=1.0, help="of the blocks")
    parser.add_argument("--groups", type=int, default=0, help="more communicators of all ranks")
    parser.add_argument("--rounds", type=int, default=0, help="of small collectives, timed")
    parser.add_argument("--parts", action="store_true", help="only what one rank does to meet them")
    parser.add_argument("--record", action="store_true", help="keep it in records/scale.json")
    given = parser.parse_args()
    if given.parts:
        figures = parts(given.ranks)
    else:
        figures = run(given.ranks, given.elements, given.density, given.groups, given.rounds)
    for name, value in figures.items():
        print(f"{name:20} {value:,.6g}")
    if given.record:
        records.keep("scale", name_of(given), figures)


def name_of(given: argparse.Namespace) -> str:
    """The row of the record: the ranks, and what else they did."""
    parts = "-parts" if given.parts else ""
    density = f"-{given.density:g}" if given.elements else ""
    more = (("groups", given.groups), ("rounds", given.rounds))
    return f"{given.ranks}{parts}{density}" + "".join(f"-{name}-{n}" for name, n in more if n)


if __name__ == "__main__":
    main()
