"""Makes sure that datagrams pass between a rank and its aggregators, before slots rely on them."""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial

from sparsewire.errors import Error, ProtocolError
from sparsewire.lifetime import disown_in_child
from sparsewire.meeting.contact.dial import Membership
from sparsewire.meeting.contact.greetings import Greeting, block_of, greet
from sparsewire.meeting.contact.keys import WayKeys, aggregator_number, datagram_keys
from sparsewire.meeting.contact.racks import RackPlace
from sparsewire.meeting.places.place import Place
from sparsewire.options import DATAGRAM_MAX, DATAGRAM_MIN, Address, Options

# Bytes of a datagram that the kernel adds up: one block of 256 in fixed point.
KERNEL_DATAGRAM = 1072
# Linux's names, which Python's socket module lacks.
_IP_MTU = 14
_IPV6_MTU = 24
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_DO = 10, 23, 2
_OVERHEAD = {socket.AF_INET: 28, socket.AF_INET6: 48}


@dataclass(frozen=True)
class Datagrams:
    """Connected sockets to the aggregators in their order, a few to each, which the engine takes
    over."""

    sockets: list[list[int]]
    """Descriptors by flow and aggregator."""
    size: int
    """Bytes of the largest datagram, alike on all ranks."""
    job: int
    epoch: int
    worker: tuple[int, int]
    """This rank's number among its aggregator's workers, and how many workers these are."""
    rack: tuple[int, int]
    """The aggregator's number among the parent's workers, and how many workers these are."""
    greeting: tuple[int, int]
    """The largest number that one had, and the block that they ask of a kernel, or 0."""
    keys: list[WayKeys] = field(repr=False)
    """The keys of each aggregator."""
    in_kernel: bool
    """Whether some aggregator adds up in its kernel."""


def open_datagrams(options: Options, member: Membership, at: RackPlace, place: Place) -> Datagrams:
    """Try datagrams to all aggregators, to which the rank is connected; a collective call.

    Raises Timeout where none of full size come back within 5 s, or Error where the aggregator
    takes none.
    """
    keys = [
        datagram_keys(member.key, member.epoch, aggregator_number(index, at.rack))
        for index in range(len(options.aggregators))
    ]
    with ExitStack() as stack:
        flows = [
            [stack.enter_context(closing(connect_datagrams(to))) for to in options.aggregators]
            for _ in range(options.flows)
        ]
        own = options.datagram or min(map(_path_size, flows[0]))
        if options.transport == "xdp":
            own = min(own, KERNEL_DATAGRAM)
        size = _least(place, own)
        kernel = options.transport == "xdp"
        greets = partial(Greeting, member, at, size, flows=len(flows), asks_kernel=kernel)
        met = [
            greet(each, address, options, greets(flow=flow, keys=ways))
            for flow, sockets in enumerate(flows)
            for address, each, ways in zip(options.aggregators, sockets, keys, strict=True)
        ]
        stack.pop_all()
        return Datagrams(
            [[each.detach() for each in sockets] for sockets in flows],
            *(size, member.job, member.epoch, (at.worker, at.workers), (at.rack, at.racks)),
            (max(each.number for each in met), block_of(size) if kernel else 0),
            *(keys, any(each.in_kernel for each in met)),
        )


def bind_datagrams(address: Address) -> socket.socket:
    """A non-blocking socket that takes datagrams at `address`; raises Error."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    receiver = socket.socket(family, socket.SOCK_DGRAM)
    try:
        receiver.bind(tuple(address))
        _forbid_fragments(receiver)
        receiver.setblocking(False)
    except OSError as error:
        receiver.close()
        raise Error(f"cannot take datagrams at {address}: {error}") from error
    return disown_in_child(receiver, "close")


def connect_datagrams(address: Address) -> socket.socket:
    """A non-blocking socket that sends datagrams to `address`; raises Error."""
    family, kind, _, _, target = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)[0]
    sender = socket.socket(family, kind)
    try:
        _forbid_fragments(sender)
        sender.connect(target)
        sender.setblocking(False)
    except OSError as error:
        sender.close()
        raise Error(f"no datagrams to the aggregator at {address}: {error}") from error
    return disown_in_child(sender, "close")


def _forbid_fragments(datagrams: socket.socket) -> None:
    """Forbid fragments: a datagram is lost with any of them, so its size follows the path."""
    datagrams.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_DO)
    if datagrams.family == socket.AF_INET6:
        datagrams.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_DO)


def _path_size(connected: socket.socket) -> int:
    """Bytes of the largest datagram on this path, as far as the system knows it."""
    is_ipv6 = connected.family == socket.AF_INET6
    level, name = (socket.IPPROTO_IPV6, _IPV6_MTU) if is_ipv6 else (socket.IPPROTO_IP, _IP_MTU)
    size = connected.getsockopt(level, name) - _OVERHEAD[connected.family]
    return max(DATAGRAM_MIN, min(size, DATAGRAM_MAX))


def _least(place: Place, own: int) -> int:
    try:
        return min(int(size) for size in place.all_gather(str(own).encode()))
    except ValueError:
        raise ProtocolError("a rank told something else than the size of its datagrams") from None
