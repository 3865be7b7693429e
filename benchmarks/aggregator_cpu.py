"""What a contribution costs an aggregator's processor: in user space, with messages that the system
cuts and puts together or without, and in the kernel.

    python benchmarks/aggregator_cpu.py [--workers 4] [--packets 100000] [--turns 3] [--record]

Counted alike for all: from a packet's arrival at the network device until its share of the copies
has been handed to the device's other end. For that the device's own work runs in a thread of the
kernel, whose time it is, and in user space the aggregator's as well. Contributions are made, and
results dropped, by programs at the other end, in bursts, on the same processor: so they are in its
cache, where a network device puts them, too. Needs root and clang, and some minutes, most of which
the kernel waits before it has a burst made.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import itertools
import os
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from ctypes import c_uint64
from pathlib import Path

import records
import xdp_program
from pyroute2 import IPRoute
from xdp_program import AGGREGATOR, EPOCH, FAR, HOST, JOB, KEYS, NEAR, PORT

from sparsewire._core import Aggregator, greeting
from sparsewire.meeting.aggregators.datagrams import bind_datagrams
from sparsewire.meeting.contact.greetings import HELLO
from sparsewire.options import Address
from sparsewire.tools.lab.namespace import Namespace
from sparsewire.xdp import XdpPlane
from sparsewire.xdp.loader import Programs
from sparsewire.xdp.maps import Map, Worker

BLOCK, DATAGRAM = 256, 1472
FIRST_PORT = 5000  # of workers, as xdp_program has them
# Half of what the queue of a veth holds.
MOST_AT_ONCE = 128
PATIENCE_S = 2.0
SIOCETHTOOL, ETHTOOL_SGRO = 0x8946, 0x2C
FRAME_HELLO, NONE = 1, 2**64 - 1


class Wire:
    """A cable between two namespaces, the aggregator's at its near end."""

    def __init__(self, stack: ExitStack) -> None:
        self.near, self.far = (
            stack.enter_context(closing(Namespace(f"cpu-{end}"))) for end in ("near", "far")
        )
        self.near.call(_make_pair, self.far.descriptor)
        hardware = {
            name: space.call(_settle, name, own)
            for space, name, own in ((self.near, NEAR, AGGREGATOR), (self.far, FAR, HOST))
        }
        self.near.call(_know, NEAR, HOST, hardware[FAR])
        self.far.call(_know, FAR, AGGREGATOR, hardware[NEAR])
        # As the other end sees it: to whom, from whom.
        self.ends = bytes.fromhex((hardware[FAR] + hardware[NEAR]).replace(":", ""))


def _make_pair(far: int) -> None:
    with IPRoute() as route:
        route.link("add", ifname=NEAR, kind="veth", peer={"ifname": FAR, "net_ns_fd": far})


def _settle(name: str, address: str) -> str:
    """Returns the interface's own address."""
    with IPRoute() as route:
        index = route.link_lookup(ifname=name)[0]
        route.addr("add", index=index, address=address, prefixlen=24)
        route.link("set", index=index, state="up")
        return str(route.get_links(index)[0].get_attr("IFLA_ADDRESS"))


def _know(name: str, address: str, hardware: str) -> None:
    with IPRoute() as route:
        index = route.link_lookup(ifname=name)[0]
        route.neigh("add", dst=address, lladdr=hardware, ifindex=index, state=0x80)


def _poll_in_thread(name: str) -> int:
    """Have the device's work done by a thread of the kernel, on this processor; its number."""
    before = set(_kernel_threads(name))
    turn_on = f"mount -t sysfs none /sys && echo 1 > /sys/class/net/{name}/threaded"
    subprocess.run(["unshare", "--mount", "sh", "-ec", turn_on], check=True)
    (thread,) = set(_kernel_threads(name)) - before
    os.sched_setaffinity(thread, os.sched_getaffinity(0))
    return thread


def _kernel_threads(name: str) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().startswith(f"napi/{name}"):
                yield int(path.parent.name)
        except OSError:
            continue


def _turn_gro_on(name: str) -> None:
    """A veth polls only then, or with a program."""
    value = ctypes.create_string_buffer(struct.pack("II", ETHTOOL_SGRO, 1))
    request = struct.pack("16sP16x", name.encode(), ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)


def spent(thread: int) -> int:
    """Nanoseconds of processor time so far."""
    return int(Path(f"/proc/{thread}/schedstat").read_text().split()[0])


@contextmanager
def kernel_engine(wire: Wire, workers: int) -> Iterator[list[int]]:
    """An aggregator in the kernel; the threads that work for it."""
    with closing(wire.near.call(XdpPlane, NEAR, PORT)) as plane:
        wire.near.call(plane.add_job, JOB, EPOCH, workers, KEYS)
        for worker in range(workers):
            plane.bind_worker(JOB, worker, HOST, FIRST_PORT + worker)
        yield [wire.near.call(_poll_in_thread, NEAR)]


@contextmanager
def user_engine(wire: Wire, workers: int, *, offload: bool) -> Iterator[list[int]]:
    """An aggregator in this process, and a job there."""
    wire.near.call(_turn_gro_on, NEAR)
    own = wire.near.call(bind_datagrams, Address(AGGREGATOR, PORT))
    before = _own_threads()
    limits = {"memory": 1 << 30, "job_memory": 1 << 30, "window": 1 << 20, "grace": 3600.0}
    with ExitStack() as stack:
        core = stack.enter_context(
            closing(Aggregator(**limits, datagrams=own.detach(), offload=offload))
        )
        (thread,) = _own_threads() - before
        for worker in range(workers):
            stack.enter_context(_join(core, worker, workers))
        _greet(wire, core, workers)
        yield [thread, wire.near.call(_poll_in_thread, NEAR)]


def _own_threads() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}


def _join(core: Aggregator, worker: int, workers: int) -> socket.socket:
    """A worker's connection, on which it has said hello."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    accepted.setblocking(False)
    core.add_worker(JOB, workers, worker, 0, accepted.detach(), EPOCH, KEYS)
    topology = workers, 1, 1, BLOCK, 1 << 16, 3_600_000, DATAGRAM, 0, 0
    payload = struct.pack("<9I", *topology)
    head = struct.pack("<BBBBIQQQ", FRAME_HELLO, 0, 0, 0, len(payload), 0, NONE, NONE)
    connection.sendall(head + payload)
    return connection


def _greet(wire: Wire, core: Aggregator, workers: int) -> None:
    """Have it learn where workers' datagrams come from."""
    party = workers, workers, 0, 1, DATAGRAM, 1
    deadline = time.monotonic() + PATIENCE_S
    for number in itertools.count(1):
        if core.stats()["datagrams_sent"] >= workers:
            return
        if time.monotonic() > deadline:
            raise TimeoutError("the aggregator answers no greetings")
        for worker in range(workers):
            hello = greeting(KEYS[0], HELLO, JOB, EPOCH, worker, 576, party, number=number)
            wire.far.call(_send_from, FIRST_PORT + worker, hello)
        time.sleep(0.05)


def _send_from(port: int, data: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind((HOST, port))
        sender.sendto(data, (AGGREGATOR, PORT))


class Traffic:
    """Contributions of all workers, round by round, and what comes back."""

    def __init__(self, wire: Wire, programs: Programs, workers: int) -> None:
        self._wire, self._programs = wire, programs
        self.burst = MOST_AT_ONCE // workers * workers
        self._progress = Map(programs.map("progress"), c_uint64)
        addresses = Map(programs.map("workers"), Worker)
        for worker in range(workers):
            known = addresses[worker]
            known.ends[:] = wire.ends
            addresses[worker] = known

    def play(self, bursts: int) -> bool:
        """Whether all results came back: where a packet was lost, rounds behind it wait."""
        for _ in range(bursts):
            self._progress[1] = c_uint64(0)
            self._wire.far.call(xdp_program.make, self._programs, self.burst, BLOCK)
            deadline = time.monotonic() + PATIENCE_S
            while self._progress[1].value < self.burst:
                if time.monotonic() > deadline:
                    return False
                time.sleep(10e-6)
        return True


ENGINES = {
    "xdp": kernel_engine,
    "udp": lambda wire, workers: user_engine(wire, workers, offload=True),
    "udp-plain": lambda wire, workers: user_engine(wire, workers, offload=False),
}


def measure(path: Path, name: str, workers: int, packets: int) -> float | None:
    """Nanoseconds of a contribution; None where a packet was lost."""
    with ExitStack() as stack:
        wire = Wire(stack)
        programs = stack.enter_context(
            closing(wire.far.call(xdp_program.generator, path, workers, BLOCK))
        )
        wire.far.call(_poll_in_thread, FAR)
        threads = stack.enter_context(ENGINES[name](wire, workers))
        traffic = Traffic(wire, programs, workers)
        bursts = packets // traffic.burst
        if not traffic.play(bursts // 10):
            return None
        begin = sum(map(spent, threads))
        if not traffic.play(bursts):
            return None
        return (sum(map(spent, threads)) - begin) / (bursts * traffic.burst)


def best(path: Path, workers: int, packets: int, turns: int) -> records.Row:
    """The least of each engine, which take turns, and how many times as much user space takes."""
    found: dict[str, list[float]] = {name: [] for name in ENGINES}
    for _ in range(turns):
        for name, times in found.items():
            time_taken = measure(path, name, workers, packets)
            times.extend([] if time_taken is None else [time_taken])
    row: records.Row = {"workers": workers, "turns": turns}
    for name, times in found.items():
        row[f"{name}_s"] = min(times) * 1e-9 if times else None
        row[f"{name}_whole_turns"] = len(times)
    for name in ("udp", "udp-plain"):
        row[f"{name}_over_xdp"] = records.ratio(row[f"{name}_s"], row["xdp_s"])
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--packets", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="keep it in the record slots-cpu")
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # And all threads from here on.
    with tempfile.TemporaryDirectory() as folder:
        path = xdp_program.compiled(folder)
        for workers in given.workers:
            row = best(path, workers, given.packets, given.turns)
            print(row, flush=True)
            if given.record:
                records.keep("slots-cpu", f"{workers}-workers", row)


if __name__ == "__main__":
    main()
