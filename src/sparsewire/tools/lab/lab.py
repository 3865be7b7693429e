"""The lab: hosts, each a network namespace, joined by shaped links to one switch."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from sparsewire.errors import LabError
from sparsewire.tools.lab import reaper
from sparsewire.tools.lab.namespace import Namespace, interface_name, publish
from sparsewire.tools.lab.quantities import limit_of
from sparsewire.tools.lab.site import XDP, Site

MAX_HOSTS = 200
MAX_LINKS = 8
MTU = 1500


class Lab(Site):
    """Emulated hosts on this machine, for as long as the `with` block lasts.

    Every host has a name (host0, host1, ...), a loopback interface, and one interface to a switch,
    or `links` of them, each to a switch of its own (eth0, eth1, ...); it has room for `ranks`
    ranks, which count host by host: `addresses` has one entry for each, on the first link.
    `link` is the speed of each link, both ways and full duplex ("1gbit"), or None for no limit.
    With a `loss`, each direction of each link drops this share of its packets, drawn at random
    without a seed; then, also with 0, nothing carries several packets as one.
    Packets have `mtu` bytes at most, 1500 by default.
    There are as many further hosts as `aggregators` says (aggregator0, ...), with links of
    `aggregator_link` ("none": no limit), or of `link` by default. Such a link is shaped a hop away
    from its host: what an XDP program sends passes by the shaper of its own interface. Each is one
    more place, behind those of the ranks. `transport` is what is to carry tensors to them: "tcp",
    "udp", "xdp", or None, which leaves it open.
    Hosts have IPv4 addresses, or with `ipv6` those of IPv6 only. They reach each other and nothing
    else; the machine's own network is not touched.
    The hosts stand in `racks`, in order, as even as may be. Each has a switch, and a `trunk` of
    that speed to the switch of the first rack, where the aggregators are, too. With two `levels`
    there is one more aggregator than racks: the first is the root of one in each rack.
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
        mtu: int | None = None,
        grace: float = 5.0,
        ipv6: bool = False,
        loss: float | None = None,
        aggregators: int = 0,
        aggregator_link: str | None = None,
        transport: str | None = None,
        racks: int = 1,
        trunk: str | None = None,
        levels: int = 1,
    ) -> None:
        if not 1 <= hosts <= MAX_HOSTS:
            raise ValueError(f"hosts is {hosts}: a lab has 1 to {MAX_HOSTS} hosts")
        if not 0 <= aggregators <= MAX_HOSTS - hosts:
            raise ValueError(f"aggregators is {aggregators}: a lab has {MAX_HOSTS} hosts at most")
        if ranks < 1:
            raise ValueError(f"ranks is {ranks}: a host has at least one")
        if not 1 <= links <= MAX_LINKS:
            raise ValueError(f"links is {links}: a host has 1 to {MAX_LINKS}")
        smallest = 1280 if ipv6 else 576
        mtu = MTU if mtu is None else mtu
        if not smallest <= mtu <= 65535:
            raise ValueError(f"mtu is {mtu}: use {smallest} to 65535 bytes")
        self._link, self._aggregator_link = map(limit_of, (link, aggregator_link or link))
        if not 1 <= racks <= hosts:
            raise ValueError(f"racks is {racks}: {hosts} hosts have 1 to {hosts}")
        if levels not in (1, 2) or (levels == 2 and aggregators != racks + 1):
            raise ValueError(f"levels is {levels}: use 1, or 2 with one more aggregator than racks")
        if loss is not None and not 0 <= loss < 1:
            raise ValueError(f"loss is {loss}: use a share from 0 to below 1")
        self._mtu, self._loss = mtu, loss
        self.hosts, self.ranks, self.aggregators = hosts, ranks, aggregators
        self.transport = transport
        self.racks, self.levels, self._trunk = racks, levels, limit_of(trunk)
        self.interface = ",".join(map(interface_name, range(links)))
        prefix = "fd00:0:0:{:x}::{:x}" if ipv6 else "10.0.{}.{}"
        self._addresses = [
            [prefix.format(link, n) for link in range(links)]
            for n in range(1, hosts + aggregators + 1)
        ]
        of_ranks = [own for own, *_ in self._addresses[:hosts] for _ in range(ranks)]
        self.addresses = of_ranks + [own for own, *_ in self._addresses[hosts:]]
        self._grace = grace
        self._namespaces: list[Namespace] = []
        self._everywhere: list[Namespace] = []  # with the switch, first
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
    def unit(self) -> str:
        """The word for a rank."""
        return "host" if self.ranks == 1 else "rank"

    def rack_of(self, place: int) -> int:
        ahead = place - self.world_size
        if ahead < 0:
            return place // self.ranks * self.racks // self.hosts
        return max(0, ahead - 1) if self.levels == 2 else 0

    def name(self, place: int) -> str:
        """The name of a place, such as "host 3" or "aggregator 0"."""
        ahead = place - self.world_size
        return f"{self.unit} {place}" if ahead < 0 else f"aggregator {ahead}"

    def popen(
        self, place: int, argv: Sequence[str], env: Mapping[str, str], **popen_kwargs: Any
    ) -> subprocess.Popen[Any]:
        # A host's thread does not follow when this process changes its directory.
        popen_kwargs.setdefault("cwd", os.getcwd())
        start = partial(super().popen, place, argv, env, **popen_kwargs)
        process = self.namespace(place).call(start)
        self._processes.append(process)
        return process

    def namespace(self, place: int) -> Namespace:
        """The namespace of a rank's or an aggregator's host, while the lab is open."""
        return self._namespaces[self._host_of(place)]

    def lost(self) -> int:
        """How many packets the lab's links have dropped at random so far."""
        from sparsewire.tools.lab.loss import lost

        return sum(namespace.call(lost) for namespace in self._everywhere)

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
        names = [f"host{number}" for number in range(self.hosts)]
        names += [f"aggregator{number}" for number in range(self.aggregators)]
        try:
            self._everywhere = [
                stack.enter_context(contextlib.closing(Namespace(name)))
                for name in ("switch", *names)
            ]
            switch, *self._namespaces = self._everywhere
            stack.callback(self._namespaces.clear)
            stack.enter_context(_guardian(self._namespaces))
            stack.callback(self.stop)
            self._connect(switch)
            publish(self._namespaces, [own for own, *_ in self._addresses])
        except OSError as error:
            raise LabError(
                f"no lab is possible here: {error}. The kernel needs veth, bridge and sch_tbf, "
                "with loss also nf_tables; a container needs --privileged"
            ) from error

    def _connect(self, switch: Namespace) -> None:
        # An extra brings what these import, and without it the lab says so in its own words.
        from sparsewire.tools.lab.cable import Link
        from sparsewire.tools.lab.network import Host, build

        def host(place: int, speed: int | None) -> Host:
            link, number = Link(speed, self._mtu, self._loss), self._host_of(place)
            own = self._namespaces[number], self._addresses[number]
            return Host(*own, link, self.rack_of(place))

        first = self.world_size
        build(
            switch,
            [host(place, self._link) for place in range(0, first, self.ranks)],
            [host(first + n, self._aggregator_link) for n in range(self.aggregators)],
            trunk=Link(self._trunk, self._mtu),
            use_xdp=self.transport == XDP,
        )

    def _host_of(self, place: int) -> int:
        ahead = place - self.world_size
        return place // self.ranks if ahead < 0 else self.hosts + ahead


def available() -> str | None:
    """Return None if a lab works here, otherwise the reason why not, in words."""
    try:
        with Lab(hosts=1, link="1gbit"):
            return None
    except LabError as error:
        return str(error)


def _missing() -> str | None:
    if sys.platform != "linux":
        return "the lab needs Linux: it is made of network namespaces"
    if find_spec("pyroute2") is None:
        return 'pyroute2 is missing: pip install "sparsewire[lab]"'
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
