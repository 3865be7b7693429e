"""Times the aggregator's programs in the kernel: nanoseconds for each contribution, and packets/s.

python benchmarks/xdp_program.py [--workers 4] [--block 256] [--packets 400000]

A program at the far end of a veth makes contributions out of frames that the kernel provides, so
that no socket takes part; another takes the results away. The kernel's own statistics say how long
each program ran (programs_ns), their own 20 ns a run among it. What else the kernel does for a
contribution and its share of the copies is in processor_ns: the time that all takes, less the time
where contributions are dropped as they arrive. Needs root and clang.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import struct
import subprocess
import tempfile
import time
from contextlib import closing
from ctypes import c_uint64
from pathlib import Path

from pyroute2 import IPRoute

from sparsewire.tools.lab.namespace import Namespace
from sparsewire.xdp import XdpPlane, libbpf
from sparsewire.xdp.libbpf import library
from sparsewire.xdp.loader import Programs, interface_index, link
from sparsewire.xdp.maps import Job, Map, Worker, place_of

HERE = Path(__file__).parent
NEAR, FAR = "near0", "far0"
PORT, JOB, EPOCH, SLOTS = 9999, 77, 1, 64
# Of contributions, and of results.
KEYS = bytes(range(32)), bytes(range(32, 64))
HEADERS, HEAD = 42, 48
LIVE_FRAMES = 1 << 1
RUN_TIME = 0
AGGREGATOR = "10.99.0.1"
HOST = "10.99.0.2"


def compiled(folder: str) -> Path:
    """The programs that make contributions."""
    path = Path(folder, "contributions.bpf.o")
    flags = ["-O2", "-g", "-target", "bpf", "-mcpu=v3"]
    headers = ["-isystem", f"/usr/include/{os.uname().machine}-linux-gnu"]
    clang = os.environ.get("CLANG", "clang-14")
    source = HERE / "contributions.bpf.c"
    subprocess.run([clang, *flags, *headers, "-c", source, "-o", path], check=True)
    return path


def connect() -> None:
    with IPRoute() as route:
        route.link("add", ifname=NEAR, kind="veth", peer={"ifname": FAR})
        for name in (NEAR, FAR):
            route.link("set", index=route.link_lookup(ifname=name)[0], state="up")


def generator(path: Path, workers: int, block: int) -> Programs:
    """The programs at the far end, which know the job."""
    shape = struct.pack(
        "<2s22xQ4I", PORT.to_bytes(2, "big"), JOB, EPOCH, workers, SLOTS, block // 16
    )
    programs = Programs(path, shape)
    Map(programs.map("jobs"), Job)[0] = Job.of(EPOCH, workers, KEYS)
    addresses = Map(programs.map("workers"), Worker)
    for worker in range(workers):
        at = Worker.at(HOST, 5000 + worker)
        at.local = Worker.at(AGGREGATOR, PORT).address
        addresses[place_of(0, worker, 0)] = at
    programs.attach("drop", FAR, libbpf.ATTACH_XDP)
    return programs


def make(programs: Programs, packets: int, block: int) -> float:
    """Have so many contributions made and taken; returns seconds."""
    size = HEADERS + HEAD + 4 * block
    frame = ctypes.create_string_buffer(bytes(12) + b"\x08\x00", size)
    context = ctypes.create_string_buffer(
        struct.pack("<6I", 0, size, 0, interface_index(FAR), 0, 0)
    )
    options = libbpf.RunOptions(
        size=ctypes.sizeof(libbpf.RunOptions),
        data_in=ctypes.addressof(frame),
        data_size_in=size,
        context_in=ctypes.addressof(context),
        context_size_in=24,
        repeat=packets,
        flags=LIVE_FRAMES,
        batch=64,
    )
    begin = time.perf_counter()
    library().bpf_prog_test_run_opts(programs.program("make"), ctypes.byref(options))
    return time.perf_counter() - begin


def ran(descriptor: int) -> tuple[int, int]:
    """Runs of a program so far, and the nanoseconds that they took."""
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    told = dict(line.split(":\t") for line in lines)
    return int(told["run_cnt"]), int(told["run_time_ns"])


def measure(path: Path, workers: int, block: int, packets: int) -> dict[str, float] | None:
    """Load everything anew, and time it; None where a packet was lost, behind which rounds wait."""
    with closing(generator(path, workers, block)) as makes:
        with closing(NothingThere(makes)):
            without = make(makes, packets, block)
        Map(makes.map("progress"), c_uint64)[0] = c_uint64(0)
        with closing(XdpPlane(NEAR, PORT)) as plane:
            plane.add_job(JOB, EPOCH, workers, KEYS)
            for worker in range(workers):
                plane.bind_worker(JOB, worker, HOST, 5000 + worker)
            seconds = make(makes, packets, block)
            stats_on = library().bpf_enable_stats(RUN_TIME)
            make(makes, packets, block)
            os.close(stats_on)
            if plane.stats(JOB)["contributions"] < 2 * packets:
                return None
            contributions, contribute = ran(plane.programs.program("contribute"))
            _, copy = ran(plane.programs.program("copy"))
    return {
        "contribute_ns": contribute / contributions,
        "copy_ns": copy / contributions,
        "programs_ns": (contribute + copy) / contributions,
        "all_ns": seconds / packets * 1e9,
        "all_without_ns": without / packets * 1e9,
    }


class NothingThere:
    """The near end, while it drops all that comes."""

    def __init__(self, programs: Programs) -> None:
        self._link = link(programs.program("drop"), NEAR, libbpf.ATTACH_XDP)

    def close(self) -> None:
        os.close(self._link)


def best(path: Path, workers: int, block: int, packets: int, turns: int) -> dict[str, float]:
    """The least of each figure."""
    packets -= packets % workers
    found = [measure(path, workers, block, packets) for _ in range(turns)]
    whole = [each for each in found if each is not None]
    least = {name: round(min(each[name] for each in whole), 1) for name in whole[0]}
    return {
        "workers": workers,
        "block": block,
        "whole_turns": len(whole),
        **least,
        "processor_ns": round(least["all_ns"] - least["all_without_ns"], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--block", type=int, default=256)
    parser.add_argument("--packets", type=int, default=400_000)
    parser.add_argument("--turns", type=int, default=9)
    arguments = parser.parse_args()
    namespace = Namespace("xdp-program")
    with tempfile.TemporaryDirectory() as folder, closing(namespace):
        path = compiled(folder)
        namespace.call(connect)
        for workers in arguments.workers:
            shape = workers, arguments.block, arguments.packets, arguments.turns
            print(json.dumps(namespace.call(best, path, *shape)), flush=True)


if __name__ == "__main__":
    main()
