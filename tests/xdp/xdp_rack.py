"""Hosts behind a bridge, one of them with the programs at its interface."""

from __future__ import annotations

import ctypes
import fcntl
import selectors
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import chain

from slot_wire import way_keys
from slot_worker import SlotWorker
from xdp_kernel import PORT

from sparsewire.tools.lab.cable import Link
from sparsewire.tools.lab.namespace import Namespace, interface_name
from sparsewire.tools.lab.network import Host, build
from sparsewire.xdp import XdpPlane

# The switch's end of the aggregator's link.
AGGREGATOR_PORT = "edge0-0"
_SIOCETHTOOL = 0x8946
GRO, TX_CHECKSUM = 0x2C, 0x17  # ETHTOOL_SGRO, ETHTOOL_STXCSUM
SET_FLAGS = 0x26  # ETHTOOL_SFLAGS: taking tags of VLANs off is one of them.


@dataclass
class Rack:
    """The plane, its process's socket, and connected sockets at each worker's host, by flow."""

    plane: XdpPlane
    aggregator: socket.socket
    flows: list[list[socket.socket]]
    near: Namespace
    far: list[Namespace]
    switch: Namespace

    @property
    def workers(self) -> list[socket.socket]:
        """The first flow of each."""
        return [flows[0] for flows in self.flows]

    def add_job(self, job: int, key: bytes) -> None:
        self.near.call(self.plane.add_job, job, 1, len(self.flows), way_keys(key))
        self.plane.set_flows(job, len(self.flows[0]))
        for number, flows in enumerate(self.flows):
            for flow, each in enumerate(flows):
                self.plane.bind_worker(job, number, *each.getsockname()[:2], flow=flow)


@contextmanager
def rack(
    workers: int, *, opener: str = "gro", is_v6: bool = False, mtu: int = 1500, flows: int = 1
) -> Iterator[Rack]:
    """A rack of so many hosts; `opener` says how the switch comes to take what programs send."""
    network = "fd77::" if is_v6 else "10.77.0."
    addresses = [f"{network}{number + 1}" for number in range(workers + 1)]
    with ExitStack() as stack:
        spaces = [
            stack.enter_context(closing(Namespace(f"xdp-{number}")))
            for number in range(workers + 2)
        ]
        switch, near, *far = spaces
        link = Link(None, mtu)
        hosts = [Host(*each, link) for each in zip(far, ([a] for a in addresses[1:]), strict=True)]
        aggregator = Host(near, addresses[:1], link)
        build(switch, hosts, [aggregator], use_xdp=opener == "pass")
        if opener == "gro":
            switch.call(turn, AGGREGATOR_PORT, GRO, on=True)
        plane = stack.enter_context(closing(near.call(XdpPlane, interface_name(0), PORT)))
        aggregating = stack.enter_context(near.call(bound, addresses[0], PORT))
        sockets = [
            [stack.enter_context(host.call(bound, address, 0)) for _ in range(flows)]
            for host, address in zip(far, addresses[1:], strict=True)
        ]
        for each in chain(*sockets):
            each.connect((addresses[0], PORT))
        yield Rack(plane, aggregating, sockets, near, far, switch)


def bound(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_DGRAM)
    opened.bind((address, port))
    opened.setblocking(False)
    return opened


def turn(interface: str, feature: int, *, on: bool) -> None:
    """Turn GRO or TX_CHECKSUM on or off; or all of SET_FLAGS off."""
    value = ctypes.create_string_buffer(struct.pack("II", feature, on))
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCETHTOOL, request)


def run(
    workers: Sequence[SlotWorker], sockets: Sequence[Sequence[socket.socket]], seconds: float
) -> None:
    """Let them work until all are done; raises TimeoutError when the time is up."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for worker, flows in zip(workers, sockets, strict=True):
            for each in flows:
                selector.register(each, selectors.EVENT_READ, worker)
        while not all(worker.is_done for worker in workers):
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError("the workers are not done")
            for worker in workers:
                worker.send_late(now)
            for key, _ in selector.select(0.01):
                key.data.receive(time.monotonic())
