"""The lab: hosts, each a network namespace, joined by shaped links to one switch."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sparsewire.errors import LabError
from sparsewire.lab import reaper
from sparsewire.lab.namespace import Namespace, interface_name, publish
from sparsewire.lab.site import Site

MAX_HOSTS = 200
MAX_LINKS = 8

_UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_SLOWEST, _FASTEST = 10**6, 34 * 10**9


class Lab(Site):
    """Emulated hosts on this machine, for as long as the `with` block lasts.

    Every host has a name (host0, host1, ...), a loopback interface, and one interface to a switch,
    or `links` of them, each to a switch of its own (eth0, eth1, ...); it has room for `ranks`
    ranks, which count host by host: `addresses` has one entry for each, on the first link.
    `link` is the speed of each link, both ways and full duplex ("1gbit"), or None for no limit.
    Hosts have IPv4 addresses, or with `ipv6` those of IPv6 only. They reach each other and nothing
    else; the machine's own network is not touched.
    Labs are independent of each other, so several can run side by side.

    When the block ends, whichever way, every process in the lab ends too: it is asked to, and
    killed after `grace` seconds. If this process is killed, they are killed at once.

    Raises ValueError for bad arguments, and LabError on entry where no lab is possible.
    """

    interface = interface_name(0)

    def __init__(
        self,
        hosts: int,
        link: str | None = None,
        *,
        ranks: int = 1,
        links: int = 1,
        mtu: int = 1500,
        grace: float = 5.0,
        ipv6: bool = False,
    ) -> None:
        if not 1 <= hosts <= MAX_HOSTS:
            raise ValueError(f"hosts is {hosts}: a lab has 1 to {MAX_HOSTS} hosts")
        if ranks < 1:
            raise ValueError(f"ranks is {ranks}: a host has at least one")
        if not 1 <= links <= MAX_LINKS:
            raise ValueError(f"links is {links}: a host has 1 to {MAX_LINKS}")
        smallest = 1280 if ipv6 else 576
        if not smallest <= mtu <= 65535:
            raise ValueError(f"mtu is {mtu}: use {smallest} to 65535 bytes")
        self.bits_per_second = None if link is None else parse_link(link)
        self.mtu = mtu
        self.ranks = ranks
        self.interface = ",".join(map(interface_name, range(links)))
        prefix = "fd00:0:0:{:x}::{:x}" if ipv6 else "10.0.{}.{}"
        self._networks = [
            [prefix.format(link, n) for n in range(1, hosts + 1)] for link in range(links)
        ]
        self.addresses = [address for address in self._hosts for _ in range(ranks)]
        self._grace = grace
        self._namespaces: list[Namespace] = []
        self._processes: list[subprocess.Popen[Any]] = []
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> "Lab":
        if missing := _missing():
            raise LabError(missing)
        with contextlib.ExitStack() as stack:
            self._build(stack)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    @property
    def _hosts(self) -> list[str]:
        """The address by which each host is known."""
        return self._networks[0]

    @property
    def unit(self) -> str:
        """What to call what runs at a place."""
        return "host" if self.ranks == 1 else "rank"

    def popen(
        self, place: int, argv: Sequence[str], env: Mapping[str, str], **popen_kwargs: Any
    ) -> subprocess.Popen[Any]:
        # A host's thread does not follow when this process changes its directory.
        popen_kwargs.setdefault("cwd", os.getcwd())
        start = partial(super().popen, place, argv, env, **popen_kwargs)
        process = self._namespaces[place // self.ranks].call(start)
        self._processes.append(process)
        return process

    def stop(self, grace: float | None = None) -> None:
        """End every process in the lab, and those that they started; the network stays."""
        reaper.end(
            {namespace.identity for namespace in self._namespaces},
            self._grace if grace is None else grace,
        )
        for process in self._processes:
            process.kill()  # It may have left the namespace, and would be waited for in vain.
            process.wait()
        self._processes.clear()

    def _build(self, stack: contextlib.ExitStack) -> None:
        # Only Linux has this dependency, and elsewhere the lab should say so in its own words.
        from sparsewire.lab import network

        try:
            hosts = [f"host{number}" for number in range(len(self._hosts))]
            switch, *self._namespaces = [
                stack.enter_context(contextlib.closing(Namespace(name)))
                for name in ("switch", *hosts)
            ]
            stack.callback(self._namespaces.clear)
            stack.enter_context(_guardian(self._namespaces))
            stack.callback(self.stop)
            network.build(switch, self._namespaces, self._networks, self.bits_per_second, self.mtu)
            publish(self._namespaces, self._hosts)
        except OSError as error:
            raise LabError(
                f"no lab is possible here: {error}. The kernel needs veth, bridge and sch_tbf; "
                "a container needs --privileged"
            ) from error


def available() -> str | None:
    """Return None if a lab works here, otherwise the reason why not, in words."""
    try:
        with Lab(hosts=1, link="1gbit"):
            return None
    except LabError as error:
        return str(error)


def parse_link(text: str) -> int:
    """Return the bits per second that `text` says, such as "100mbit", "1gbit" or "2.5gbit".

    Raises ValueError for anything else, and for speeds that the shaper cannot express
    (below 1 Mbit/s or above 34 Gbit/s).
    """
    bits = parse_speed(text)
    if not _SLOWEST <= bits <= _FASTEST:
        raise ValueError(f"link speed {text!r} is out of range: use 1mbit to 34gbit")
    return bits


def parse_speed(text: str) -> int:
    """Like `parse_link`, for links that are not shaped: any speed above 0."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]bit)", text.strip().lower())
    bits = 0 if match is None else round(float(match[1]) * _UNITS[match[2]])
    if not bits:
        raise ValueError(f"cannot read link speed {text!r}: write it like 100mbit, 1gbit or 10gbit")
    return bits


def _missing() -> str | None:
    if sys.platform != "linux":
        return "the lab needs Linux: it is made of network namespaces"
    if os.geteuid() != 0:
        return (
            "the lab needs root, to create network namespaces: run it with sudo, "
            "or start it with: unshare --map-root-user"
        )
    return None


@contextlib.contextmanager
def _guardian(namespaces: Sequence[Namespace]) -> Iterator[None]:
    """Have another process end what is left in `namespaces` should this one be killed."""
    descriptors = [namespace.descriptor for namespace in namespaces]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", reaper.__file__, *map(str, descriptors)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=descriptors,
        start_new_session=True,
    ):
        yield
