"""A cable of the lab: a veth pair whose two ends limit what they send, and may lose some of it."""

from collections.abc import Sequence
from typing import NamedTuple

from pyroute2 import IPRoute
from pyroute2.ethtool.ioctl import IoctlEthtool

from sparsewire.tools.lab.loss import lose
from sparsewire.tools.lab.namespace import Namespace

# A burst passes unshaped after every pause, so it is as small as it can be: a packet that TCP has
# not yet cut into segments is up to 64 KiB long, and has to fit. With 256 KiB, a short collective
# at 100 Mbit/s would beat the wire.
_BURST_BYTES = 80 * 1024
# The buffer of a port of a common switch. Eight senders to one receiver lose nothing in it.
_QUEUE_BYTES = 4 * 1024 * 1024

# Features of a device, by the kernel's names.
_UDP_MERGING = ("rx-gro", "rx-udp-gro-forwarding")
UDP_SEGMENTING = ("tx-udp-segmentation",)
_SEGMENTING = (
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    *UDP_SEGMENTING,
)


class Link(NamedTuple):
    """The effect of a cable on traffic, the same both ways."""

    bits_per_second: int | None
    """None: no limit."""
    mtu: int
    loss: float | None = None
    """Share of packets that are dropped. None: none, and the system may carry several as one."""


class End(NamedTuple):
    """An interface, and the namespace that it is in."""

    namespace: Namespace
    name: str


def lay(near: End, far: End, link: Link) -> None:
    """Connect two ends, which are down. Raises NetlinkError where the kernel refuses."""
    near.namespace.call(_make_pair, near.name, far.name, far.namespace.descriptor, link.mtu)
    for end in (near, far):
        end.namespace.call(_condition, end.name, link)


def _make_pair(name: str, far_name: str, far_namespace: int, mtu: int) -> None:
    far_end = {"ifname": far_name, "net_ns_fd": far_namespace, "mtu": mtu}
    with IPRoute() as route:
        route.link("add", ifname=name, kind="veth", mtu=mtu, peer=far_end)


def _condition(name: str, link: Link) -> None:
    with IPRoute() as route:
        _shape(route, route.link_lookup(ifname=name)[0], link.bits_per_second)
    if link.loss is not None:
        segment_here(name)
    if link.loss:
        lose(name, link.loss)


def segment_here(name: str, features: Sequence[str] = _SEGMENTING) -> None:
    """Have the system cut what TCP and UDP give it in one before it leaves, not the other end.

    So that a drop is that of one packet. TCP knows nothing of it: where it makes single packets
    itself, a connection reaches less than half of a gigabit link.
    """
    _turn(name, features, on=False)


def merge_datagrams(name: str) -> None:
    """Have what comes in here one by one, and is of one flow, travel on as one packet.

    As a card does that puts segments together (GRO) before a switch in software sees them.
    """
    _turn(name, _UDP_MERGING, on=True)


def _turn(name: str, features: Sequence[str], *, on: bool) -> None:
    device = IoctlEthtool(name)
    try:
        told = device.get_features()
        for feature in features:
            told[feature] = on
        device.set_features(told)
    finally:
        device.close()


def _shape(route: IPRoute, index: int, bits_per_second: int | None) -> None:
    """Limit what leaves through interface `index`, with a finite queue that drops the overflow."""
    if bits_per_second is not None:
        rate = bits_per_second // 8
        route.tc("add", "tbf", index=index, rate=rate, burst=_BURST_BYTES, limit=_QUEUE_BYTES)
