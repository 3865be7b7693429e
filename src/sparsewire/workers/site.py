"""What running processes needs of a set of hosts, and loopback as the simplest one."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Protocol


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
    """Ports that are free on loopback now. Emulated hosts are empty, so they are free there too."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports
