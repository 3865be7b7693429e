"""What one rank can say of its machine without talking to others."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from sparsewire import __version__, _core
from sparsewire.doctor.device import Device, device_with
from sparsewire.lab import available
from sparsewire.meeting.sockets import host_identity, is_loopback, local_address, prepare

_NAME_BYTES = 16


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
    congestion_control: str | None
    mtu: int | None
    speed_mbit: int | None
    torch: str | None
    mpi4py: str | None
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
        interface=device.interface,
        address=address,
        address_problem=problem,
        is_loopback=address is not None and is_loopback(address),
        congestion_control=_congestion_control(),
        mtu=device.mtu,
        speed_mbit=device.speed_mbit,
        torch=_package("torch"),
        mpi4py=_package("mpi4py"),
        lab=(available() or "possible") if try_lab else None,
    )


def _address(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    try:
        return local_address(environment), None
    except ValueError as error:
        return None, str(error)


def _package(name: str) -> str | None:
    try:
        return version(name) if find_spec(name) else None
    except PackageNotFoundError:
        return None


def _congestion_control() -> str | None:
    """What a connection of a collective would use."""
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is None:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        prepare(connection)
        name: bytes = connection.getsockopt(socket.IPPROTO_TCP, option, _NAME_BYTES)
    return name.rstrip(b"\0").decode()
