"""What running processes needs of a set of hosts, and loopback as the simplest one."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Mapping, Sequence
from random import SystemRandom
from typing import Any, Protocol

from sparsewire.errors import Error

# Below those that systems give to whoever asks for any port: workers take seconds to start, and
# meanwhile such a one may become somebody's.
_PORTS: Sequence[int] = range(20_000, 32_768)


class Site(Protocol):
    """The part of `sparsewire.lab.Lab` that runs processes."""

    @property
    def addresses(self) -> list[str]: ...
    @property
    def interface(self) -> str: ...
    def environment(
        self, host: int, *, world_size: int | None = None, master_port: int = 29500
    ) -> dict[str, str]: ...
    def popen(
        self, host: int, argv: Sequence[str], env: Mapping[str, str], **popen_kwargs: Any
    ) -> subprocess.Popen[Any]: ...


class Loopback:
    """All processes on this machine, over loopback."""

    interface = "lo"

    def __init__(self, hosts: int) -> None:
        self.addresses = ["127.0.0.1"] * hosts

    def popen(
        self, host: int, argv: Sequence[str], env: Mapping[str, str], **popen_kwargs: Any
    ) -> subprocess.Popen[Any]:
        """Start a process in a session of its own, so that Ctrl-C reaches only who started it."""
        return subprocess.Popen(list(argv), env=env, start_new_session=True, **popen_kwargs)

    def environment(
        self, host: int, *, world_size: int | None = None, master_port: int = 29500
    ) -> dict[str, str]:
        """The variables that torchrun sets for rank `host`, and the interface's name."""
        size = str(len(self.addresses) if world_size is None else world_size)
        return {
            "RANK": str(host),
            "WORLD_SIZE": size,
            "LOCAL_RANK": str(host),
            "LOCAL_WORLD_SIZE": size,
            "MASTER_ADDR": self.addresses[0],
            "MASTER_PORT": str(master_port),
            "SPARSEWIRE_IFNAME": self.interface,
            "GLOO_SOCKET_IFNAME": self.interface,
        }


def free_ports(count: int) -> list[int]:
    """Ports that are free on loopback now. Emulated hosts are empty, so they are free there too.

    Raises Error where so many are not to be had.
    """
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        for port in SystemRandom().sample(_PORTS, len(_PORTS)):
            if len(ports) == count:
                break
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                ports.append(port)
    if len(ports) < count:
        raise Error(f"no {count} ports are free on loopback: end what listens there")
    return ports
