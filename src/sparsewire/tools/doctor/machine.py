"""One rank's facts about its machine, found without talking to others."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from sparsewire import __version__, _core
from sparsewire.meeting.contact.sockets import host_identity, is_loopback, local_addresses, prepare
from sparsewire.meeting.network.interfaces import device_with
from sparsewire.meeting.network.resources import Resources, own_resources
from sparsewire.options import resolve
from sparsewire.tools.doctor.gpu import look_at_gpu
from sparsewire.tools.lab import available

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
    resources: Resources | None = None
    """Resources for lanes; None if the settings are wrong."""
    lanes: int | None = None
    """The lanes that the rank asks for; None if the ranks are to agree."""
    lab: str | None = None
    """Whether `sparsewire lab` works here, or why not; None where nobody tried."""


def look_at_machine(environment: Mapping[str, str], *, try_lab: bool) -> Machine:
    """Collect the facts; what is wrong with the settings becomes `address_problem`."""
    addresses, problem = _addresses(environment)
    devices = [device_with(address) for address in addresses]
    return Machine(
        host=socket.gethostname(),
        identity=host_identity(),
        version=__version__,
        simd=_core.simd_level(),
        processors=len(os.sched_getaffinity(0)),
        interface=_joined(device.interface for device in devices),
        mtu=_least(device.mtu for device in devices),
        speed_mbit=_least(device.speed_mbit for device in devices),
        address=_joined(addresses),
        address_problem=problem,
        is_loopback=any(map(is_loopback, addresses)),
        congestion_control=_congestion_control(),
        torch=_package("torch"),
        mpi4py=_package("mpi4py"),
        **look_at_gpu(environment)._asdict(),
        resources=own_resources(addresses) if addresses else None,
        lanes=_lanes(environment),
        lab=(available() or "possible") if try_lab else None,
    )


def _addresses(environment: Mapping[str, str]) -> tuple[list[str], str | None]:
    try:
        return local_addresses(environment), None
    except ValueError as error:
        return [], str(error)


def _joined(texts: Iterable[str | None]) -> str | None:
    return ", ".join(text for text in texts if text) or None


def _least(values: Iterable[int | None]) -> int | None:
    """None where some is not known."""
    known = list(values)
    return None if None in known else min(known, default=None)  # type: ignore[type-var]


def _lanes(environment: Mapping[str, str]) -> int | None:
    with contextlib.suppress(ValueError):
        return resolve(environment, rank=0, world_size=1).lanes
    return None


def _package(name: str) -> str | None:
    with contextlib.suppress(PackageNotFoundError):
        return version(name) if find_spec(name) else None
    return None


def _congestion_control() -> str:
    """The congestion control of a collective's connections."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        prepare(connection)
        name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES)
    return name.rstrip(b"\0").decode()
