"""The interface of a set of hosts that run processes, and loopback as the simplest one."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Mapping, Sequence
from random import SystemRandom
from typing import Any

from sparsewire.errors import Error

# Below the ports that systems hand out by themselves: workers take seconds to start, and meanwhile
# such a port may be taken.
_PORTS: Sequence[int] = range(20_000, 32_768)

TCP, UDP, XDP = "tcp", "udp", "xdp"


class Site:
    """A place at each of `addresses`, for a rank or, at the last ones, for an aggregator.

    All have an interface of one name.
    """

    interface: str
    addresses: list[str]
    aggregators: int = 0
    transport: str | None = None
    """The transport of tensors to aggregators; None: that of the environment."""

    levels: int = 1
    """Levels of aggregators. 1: each serves all ranks. 2: the first serves the other aggregators,
    and each of these serves the ranks of a rack."""

    def rack_of(self, place: int) -> int:
        """The number of the rack that a place is in."""
        return 0

    @property
    def world_size(self) -> int:
        """Places for ranks."""
        return len(self.addresses) - self.aggregators

    def popen(
        self, place: int, argv: Sequence[str], env: Mapping[str, str], **popen_kwargs: Any
    ) -> subprocess.Popen[Any]:
        """Start `argv` at `place`; like subprocess.Popen, in a session of its own by default.

        So Ctrl-C reaches only its starter. `env` is the whole environment: usually
        `{**os.environ, **site.environment(place)}`.
        """
        popen_kwargs.setdefault("start_new_session", True)
        return subprocess.Popen(list(argv), env=dict(env), **popen_kwargs)

    def environment(
        self, place: int, *, world_size: int | None = None, master_port: int = 29500
    ) -> dict[str, str]:
        """The variables that torchrun sets for the rank at `place`, and the interface's name.

        With a smaller `world_size` than the site's, the last places have no rank. Raises ValueError
        if `place` is not a rank.
        """
        size = self.world_size if world_size is None else world_size
        if not 0 <= place < size <= self.world_size:
            raise ValueError(f"place {place} has no rank: {size} ranks, {self.world_size} places")
        own, everybody = self.addresses[place], self.addresses[:size]
        machines = list(dict.fromkeys(everybody))
        return {
            "RANK": str(place),
            "WORLD_SIZE": str(size),
            "LOCAL_RANK": str(everybody[:place].count(own)),
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

    def __init__(self, ranks: int, aggregators: int = 0, transport: str | None = None) -> None:
        self.addresses = ["127.0.0.1"] * (ranks + aggregators)
        self.aggregators, self.transport = aggregators, transport


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
