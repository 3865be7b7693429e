"""The programs in the kernel, in a namespace of their own, run on frames that tests make."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from pyroute2 import IPRoute
from slot_wire import flow_of, way_keys
from xdp_frames import End, frame

from sparsewire.errors import Error
from sparsewire.tools.lab import available
from sparsewire.tools.lab.namespace import Namespace
from sparsewire.xdp import XdpPlane, libbpf
from sparsewire.xdp.libbpf import library
from sparsewire.xdp.loader import object_path
from sparsewire.xdp.maps import SLOTS, Map, Parent, Slot, Worker, place_of

DROP, PASS, REDIRECT = 1, 2, 4
PORT = 9999
NEAR, FAR = "near0", "far0"
AGGREGATOR = End(b"\x02\x00\x00\x00\x00\x01", "10.0.0.254", PORT)


def why_not() -> str | None:
    """Why the programs cannot be tried here."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "loading programs into the kernel needs root"
    try:
        library()
        object_path()
    except Error as error:
        return str(error)
    return available()


WHY_NOT = why_not()
# CI installs what it takes, so there they run.
needs_kernel = [
    pytest.mark.lab,
    pytest.mark.skipif(
        WHY_NOT is not None and not (os.environ.get("CI") and os.geteuid() == 0),
        reason=f"{WHY_NOT}",
    ),
]


ROOT = End(b"\x02\x00\x00\x00\x02\x01", "10.0.9.1", 4000)
RACK, RACKS = 1, 3
AGGREGATOR_V6 = replace(AGGREGATOR, host="fd00::fe")


def worker_end(worker: int, *, is_v6: bool = False, flow: int = 0) -> End:
    host = f"fd00::{worker + 1:x}" if is_v6 else f"10.0.0.{worker + 1}"
    return End(bytes([2, 0, 0, 0, 1, worker]), host, 5000 + worker + 100 * flow)


class Kernel:
    """A plane at one end of a veth, and frames run through its program one by one."""

    def __init__(self, namespace: Namespace, host: str) -> None:
        self._namespace = namespace
        self._flows = 1
        namespace.call(connect)
        self.plane = namespace.call(XdpPlane, NEAR, PORT, host)
        programs = self.plane.programs
        self._slots = Map(programs.map("slots"), Slot)
        self._workers = Map(programs.map("workers"), Worker)
        self._parents = Map(programs.map("parents"), Parent)
        self._places = Map(programs.map("places"), ctypes.c_uint32, ctypes.c_uint64)

    def add_job(
        self,
        job: int,
        workers: int,
        key: bytes,
        *,
        epoch: int = 1,
        is_v6: bool = False,
        root: End | None = None,
        flows: int = 1,
    ) -> None:
        """Of a rack, where there is a root."""
        upstream = (root.host, root.port, RACK, RACKS, way_keys(key, above=True)) if root else None
        self._namespace.call(self.plane.add_job, job, epoch, workers, way_keys(key), upstream)
        self._flows = flows
        self.plane.set_flows(job, flows)
        for worker in range(workers):
            for flow in range(flows):
                end = worker_end(worker, is_v6=is_v6, flow=flow)
                self.plane.bind_worker(job, worker, end.host, end.port, flow=flow)

    def run(self, data: bytes) -> tuple[int, bytes]:
        """The program's verdict, and what has become of the frame."""
        out = ctypes.create_string_buffer(4096)
        options = libbpf.RunOptions(
            size=ctypes.sizeof(libbpf.RunOptions),
            data_in=ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p),
            data_out=ctypes.addressof(out),
            data_size_in=len(data),
            data_size_out=len(out),
            repeat=1,
        )
        program = self.plane.programs.program("contribute")
        library().bpf_prog_test_run_opts(program, ctypes.byref(options))
        return options.result, out.raw[: options.data_size_out]

    def addressee(self, job: int, data: bytes) -> tuple[int, int, int]:
        """Slot, version and worker that stand in place of an answer's address.

        Of workers, 254 is the root, and 255 everyone.
        """
        ticket = int.from_bytes(data[30:34], "little")
        assert ticket >> 16 == self._places[job].value
        return ticket >> 9 & 127, ticket >> 8 & 1, ticket & 255

    def slot(self, job: int, slot: int) -> Slot:
        return self._slots[self._slot_place(job, slot)]

    def set_rounds(self, job: int, slot: int, first: int) -> None:
        """Have a slot be as if all rounds before this even one had been."""
        state = Slot()
        for number, version in zip((first - 2, first - 1), state.version, strict=True):
            version.turn = ((number >> 1) + 1) % (1 << 63)
        self._slots[self._slot_place(job, slot)] = state

    def path_up(self, job: int) -> bytes:
        """The Ethernet addresses between which the root's datagrams come."""
        return bytes(self._parents[self._places[job].value].at.ends)

    def path(self, job: int, worker: int, flow: int = 0) -> bytes:
        """The Ethernet addresses between which a worker's contributions come."""
        return bytes(self._workers[place_of(self._places[job].value, worker, flow)].ends)

    def _slot_place(self, job: int, slot: int) -> int:
        return self._places[job].value * SLOTS + slot

    def send_down(self, payload: bytes) -> tuple[int, bytes]:
        """As the root."""
        return self.run(frame(ROOT, AGGREGATOR, payload))

    def send(self, worker: int, payload: bytes) -> tuple[int, bytes]:
        """By the flow of the slot."""
        flow = flow_of(int.from_bytes(payload[4:6], "little"), self._flows)
        return self.run(frame(worker_end(worker, flow=flow), AGGREGATOR, payload))


def connect() -> None:
    with IPRoute() as route:
        route.link("add", ifname=NEAR, kind="veth", peer={"ifname": FAR})
        for name in (NEAR, FAR):
            route.link("set", index=route.link_lookup(ifname=name)[0], state="up")


@contextmanager
def kernel(host: str = "") -> Iterator[Kernel]:
    """One that takes what comes to `host`, or to any."""
    with closing(Namespace("xdp-test")) as namespace:
        running = Kernel(namespace, host)
        with closing(running.plane):
            yield running
