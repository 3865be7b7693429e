"""Hosts behind a bridge, one of them with the programs at its interface."""

from __future__ import annotations

import ctypes
import fcntl
import os
import selectors
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from slot_worker import SlotWorker
from xdp_kernel import PORT

from sparsewire.lab.namespace import Namespace, interface_name
from sparsewire.lab.network import build
from sparsewire.xdp import XdpPlane
from sparsewire.xdp.loader import attach_pass

# The switch's end of the aggregator's link.
AGGREGATOR_PORT = "port0-0"
_SIOCETHTOOL, _ETHTOOL_SGRO = 0x8946, 0x2C


@dataclass
class Rack:
    """The plane, the socket of its process, and a connected socket at each worker's host."""

    plane: XdpPlane
    aggregator: socket.socket
    workers: list[socket.socket]
    hosts: list[Namespace]

    def add_job(self, job: int, key: bytes) -> None:
        self.hosts[0].call(self.plane.add_job, job, 1, len(self.workers), key)
        for number, each in enumerate(self.workers):
            self.plane.bind_worker(job, number, *each.getsockname())


@contextmanager
def rack(workers: int, opener: str = "gro") -> Iterator[Rack]:
    """A rack of so many hosts; `opener` says how the switch comes to take what programs send."""
    addresses = [f"10.77.0.{number + 1}" for number in range(workers + 1)]
    with ExitStack() as stack:
        spaces = [
            stack.enter_context(closing(Namespace(f"xdp-{number}")))
            for number in range(workers + 2)
        ]
        switch, *hosts = spaces
        build(switch, hosts, [addresses], None, 1500)
        if opener == "gro":
            switch.call(turn_gro_on, AGGREGATOR_PORT)
        else:
            stack.callback(os.close, switch.call(attach_pass, AGGREGATOR_PORT))
        plane = stack.enter_context(closing(hosts[0].call(XdpPlane, interface_name(0), PORT)))
        sockets = [
            stack.enter_context(host.call(bound, address, PORT if host is hosts[0] else 0))
            for host, address in zip(hosts, addresses, strict=True)
        ]
        for each in sockets[1:]:
            each.connect((addresses[0], PORT))
        yield Rack(plane, sockets[0], sockets[1:], hosts)


def bound(address: str, port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind((address, port))
    opened.setblocking(False)
    return opened


def turn_gro_on(interface: str) -> None:
    value = ctypes.create_string_buffer(struct.pack("II", _ETHTOOL_SGRO, 1))
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCETHTOOL, request)


def run(workers: Sequence[SlotWorker], sockets: Sequence[socket.socket], seconds: float) -> None:
    """Let them work until all are done; raises TimeoutError when the time is up."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for worker, each in zip(workers, sockets, strict=True):
            selector.register(each, selectors.EVENT_READ, worker)
        while not all(worker.is_done for worker in workers):
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError("the workers are not done")
            for worker in workers:
                worker.send_late(now)
            for key, _ in selector.select(0.01):
                key.data.receive(time.monotonic())
