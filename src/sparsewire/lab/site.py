"""What running processes needs of a set of hosts, and loopback as the simplest one."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Mapping, Sequence
from random import SystemRandom
from typing import Any

from sparsewire.errors import Error

# Below those that systems give to whoever asks for any port: workers take seconds to start, and
# meanwhile such a one may become somebody's.
_PORTS: Sequence[int] = range(20_000, 32_768)


class Site:
    """A place for one rank at each of `addresses`, which all have an interface of one name."""

    interface: str
    addresses: list[str]

    def popen(
        self, host: int, argv: Sequence[str], env: Mapping[str, str], **popen_kwargs: Any
    ) -> subprocess.Popen[Any]:
        """Start `argv` on `host`; like subprocess.Popen, in a session of its own by default.

        So Ctrl-C reaches only who started it. `env` is the whole environment: usually
        `{**os.environ, **site.environment(host)}`.
        """
        popen_kwargs.setdefault("start_new_session", True)
        return subprocess.Popen(list(argv), env=dict(env), **popen_kwargs)

    def environment(
        self, host: int, *, world_size: int | None = None, master_port: int = 29500
    ) -> dict[str, str]:
        """Return the variables that torchrun sets, for one rank per host, and the interface's name.

        With `world_size` below the number of hosts, the last hosts are no ranks: they are free for
        aggregators. Raises ValueError if `host` is not a rank.
        """
        size = len(self.addresses) if world_size is None else world_size
        if not 0 <= host < size <= len(self.addresses):
            raise ValueError(f"host {host} is no rank: {size} ranks on {len(self.addresses)} hosts")
        own, everybody = self.addresses[host], self.addresses[:size]
        machines = list(dict.fromkeys(everybody))
        return {
            "RANK": str(host),
            "WORLD_SIZE": str(size),
            "LOCAL_RANK": str(everybody[:host].count(own)),
            "LOCAL_WORLD_SIZE": str(everybody.count(own)),
            "GROUP_RANK": str(machines.index(own)),
            "GROUP_WORLD_SIZE": str(len(machines)),
            "MASTER_ADDR": self.addresses[0],
            "MASTER_PORT": str(master_port),
            "SPARSEWIRE_IFNAME": self.interface,
            "GLOO_SOCKET_IFNAME": self.interface,
        }


class Loopback(Site):
    """All processes on this machine, over loopback."""

    interface = "lo"

    def __init__(self, hosts: int) -> None:
        self.addresses = ["127.0.0.1"] * hosts


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
