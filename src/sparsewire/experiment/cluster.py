"""Where an experiment runs: on this machine's loopback, or on emulated hosts of the lab."""

import contextlib
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import SystemRandom
from typing import Any

from sparsewire.errors import Error, ExperimentError
from sparsewire.lab import Lab, parse_link

# Below those that systems give to whoever asks for any port: workers take seconds to start, and
# meanwhile such a one may become somebody's.
_PORTS: Sequence[int] = range(20_000, 32_768)


class Loopback:
    """The part of `Lab` that runs processes: all on this machine, over loopback."""

    interface = "lo"

    def __init__(self, hosts: int) -> None:
        self.addresses = ["127.0.0.1"] * hosts

    def popen(
        self, host: int, argv: Sequence[str], env: Mapping[str, str], **popen_kwargs: Any
    ) -> subprocess.Popen[Any]:
        """Start a process in a session of its own, so that Ctrl-C reaches only who started it."""
        return subprocess.Popen(list(argv), env=env, start_new_session=True, **popen_kwargs)

    def environment(self, host: int, *, world_size: int, master_port: int) -> dict[str, str]:
        """The variables that torchrun sets for rank `host`, and the interface's name."""
        return {
            "RANK": str(host),
            "WORLD_SIZE": str(world_size),
            "LOCAL_RANK": str(host),
            "LOCAL_WORLD_SIZE": str(world_size),
            "MASTER_ADDR": self.addresses[0],
            "MASTER_PORT": str(master_port),
            "SPARSEWIRE_IFNAME": self.interface,
            "GLOO_SOCKET_IFNAME": self.interface,
        }


Site = Loopback | Lab


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


@dataclass(frozen=True)
class Cluster:
    """Where to run: on loopback, or on one emulated host per rank and aggregator.

    Raises ExperimentError, or ValueError for a link's speed, for what makes no sense.
    """

    ranks: int
    aggregators: int = 0
    emulated: bool = False
    """Then every rank has a network interface to itself, whose counters mean something."""
    link: str | None = None

    def __post_init__(self) -> None:
        if self.ranks < 2:
            raise ExperimentError(f"a collective needs at least 2 ranks, not {self.ranks}")
        if self.link and not self.emulated:
            raise ExperimentError("--link shapes emulated hosts; give --hosts too")
        if self.link:
            parse_link(self.link)

    def open(self) -> contextlib.AbstractContextManager[Site]:
        """The hosts, for as long as a `with` block lasts."""
        count = self.ranks + self.aggregators
        if self.emulated:
            return Lab(count, self.link)
        return contextlib.nullcontext(Loopback(count))

    def seconds(self, bytes_per_host: float) -> float | None:
        """What a host's link takes for so many bytes; None where its speed is unknown."""
        return bytes_per_host * 8 / parse_link(self.link) if self.link else None

    @property
    def place(self) -> str:
        """Where the ranks are, in words."""
        where = "emulated hosts" if self.emulated else "loopback"
        return f"{where} at {self.link}" if self.link else where

    def __str__(self) -> str:
        aggregators = f", {self.aggregators} dedicated aggregators" if self.aggregators else ""
        return f"{self.ranks} ranks on {self.place}{aggregators}"
