"""What one rank can say of its machine without talking to others."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, NamedTuple

from pyroute2 import Ethtool, IPRoute
from pyroute2.ethtool.ioctl import EthtoolError

from sparsewire import __version__, _core
from sparsewire.doctor.gpu import look_at_gpu
from sparsewire.lab import available
from sparsewire.meeting.sockets import host_identity, is_loopback, local_address, prepare

_NAME_BYTES = 16


class Device(NamedTuple):
    """An interface as Linux knows it in this namespace, unlike /sys; None for what it does not."""

    interface: str | None = None
    mtu: int | None = None
    """The largest packet in bytes."""
    speed_mbit: int | None = None
    """The speed of the link as its driver tells; many virtual ones do not."""


@dataclass(frozen=True)
class Machine:
    """Facts of one rank; None where something is not known or not there."""

    host: str
    identity: str
    """Equal where ranks reach each other over loopback."""
    version: str
    simd: str
    processors: int
    interface: str | None
    address: str | None
    address_problem: str | None
    is_loopback: bool
    congestion_control: str
    mtu: int | None
    speed_mbit: int | None
    torch: str | None
    mpi4py: str | None
    gpu: str | None = None
    """The GPU that torch would use."""
    gpu_down_s: float | None = None
    gpu_up_s: float | None = None
    """Seconds of a byte between it and pinned host memory."""
    lab: str | None = None
    """Whether `sparsewire lab` works here, or why not; None where nobody tried."""


def look_at_machine(environment: Mapping[str, str], *, try_lab: bool) -> Machine:
    """Collect the facts; what is wrong with the settings becomes `address_problem`."""
    address, problem = _address(environment)
    device = device_with(address) if address else Device()
    return Machine(
        host=socket.gethostname(),
        identity=host_identity(),
        version=__version__,
        simd=_core.simd_level(),
        processors=len(os.sched_getaffinity(0)),
        **device._asdict(),
        address=address,
        address_problem=problem,
        is_loopback=address is not None and is_loopback(address),
        congestion_control=_congestion_control(),
        torch=_package("torch"),
        mpi4py=_package("mpi4py"),
        **look_at_gpu(environment)._asdict(),
        lab=(available() or "possible") if try_lab else None,
    )


def _address(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    try:
        return local_address(environment), None
    except ValueError as error:
        return None, str(error)


def device_with(address: str) -> Device:
    """The interface that has this IP address."""
    with IPRoute() as route:
        for entry in route.get_addr():
            if address in (entry.get_attr("IFA_LOCAL"), entry.get_attr("IFA_ADDRESS")):
                (link,) = route.get_links(entry["index"])
                name = link.get_attr("IFLA_IFNAME")
                return Device(name, link.get_attr("IFLA_MTU"), _speed_mbit(link, name))
    return Device()


def _speed_mbit(link: Any, name: str) -> int | None:
    # This one tells 10000, whatever shapes it.
    if link.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") != "veth":
        with contextlib.suppress(EthtoolError, OSError), Ethtool() as ethtool:
            return ethtool.get_link_mode(name).speed or None
    return None


def _package(name: str) -> str | None:
    with contextlib.suppress(PackageNotFoundError):
        return version(name) if find_spec(name) else None
    return None


def _congestion_control() -> str:
    """What a connection of a collective would use."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        prepare(connection)
        name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES)
    return name.rstrip(b"\0").decode()
