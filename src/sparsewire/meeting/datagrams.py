"""Makes sure that datagrams pass between a rank and its aggregators, before slots rely on them."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field

from sparsewire._core import greeting, read_greeting
from sparsewire.errors import Error, ProtocolError, Timeout
from sparsewire.lifetime import disown_in_child
from sparsewire.meeting.handshake import derive
from sparsewire.meeting.mesh import Membership
from sparsewire.meeting.place import Place
from sparsewire.meeting.racks import RackPlace
from sparsewire.options import DATAGRAM_MAX, DATAGRAM_MIN, Address, Options

CONTRIBUTION, HELLO, WELCOME = 1, 4, 5
TRY_S = 5.0
_PAUSE_S = 0.02
_PAUSE_MAX_S = 0.2
# What an engine in the kernel adds up: one block of 256 in fixed point.
KERNEL_DATAGRAM = 1072
# Linux's names, which Python's socket module lacks.
_IP_MTU = 14
_IPV6_MTU = 24
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_DO = 10, 23, 2
_OVERHEAD = {socket.AF_INET: 28, socket.AF_INET6: 48}


@dataclass(frozen=True)
class Datagrams:
    """Connected sockets to the aggregators in their order, which the engine takes over."""

    sockets: list[int]
    size: int
    """Bytes of the largest datagram, alike on all ranks."""
    job: int
    epoch: int
    worker: tuple[int, int]
    """Which of an aggregator's workers this rank is, and of how many."""
    key: bytes = field(repr=False)


def datagram_key(key: bytes, epoch: int) -> bytes:
    """The key of a job's datagrams, from that of its connections."""
    return derive(key, "datagrams", epoch.to_bytes(4, "big"))


def open_datagrams(options: Options, member: Membership, at: RackPlace, place: Place) -> Datagrams:
    """Try datagrams to all aggregators, to which the rank is connected; a collective call.

    Raises Timeout where none come back within 5 s, or Error where the aggregator takes none.
    """
    key = datagram_key(member.key, member.epoch)
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(closing(connect_datagrams(to))) for to in options.aggregators
        ]
        own = options.datagram or min(map(_path_size, sockets))
        if options.transport == "xdp":
            own = min(own, KERNEL_DATAGRAM)
        size = _least(place, own)
        for address, each in zip(options.aggregators, sockets, strict=True):
            _try(each, address, options, _Greeting(member, at, size), key)
        stack.pop_all()
        return Datagrams(
            [each.detach() for each in sockets],
            *(size, member.job, member.epoch, (at.worker, at.workers), key),
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
    """One fragment lost is all lost, so the size follows the path."""
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


@dataclass(frozen=True)
class _Greeting:
    """What a rank says to an aggregator, and hears from it; `size` of the largest datagram."""

    member: Membership
    at: RackPlace
    size: int

    def hello(self, key: bytes, length: int) -> bytes:
        at, member = self.at, self.member
        party = (at.workers, member.world_size, at.rack, at.racks, self.size)
        return greeting(key, HELLO, member.job, member.epoch, at.worker, length, party)

    @property
    def answer(self) -> tuple[int, int, int, int]:
        """How a welcome begins."""
        return WELCOME, self.member.job, self.member.epoch, self.at.worker


def _try(
    sender: socket.socket, address: Address, options: Options, says: _Greeting, key: bytes
) -> None:
    """Greet, again and again, until a datagram of full size has come back."""
    small_passed = False
    size = says.size
    for attempt in _attempts():
        # Now and then a small one: to tell a path that is too narrow from one that is closed.
        length = DATAGRAM_MIN if attempt % 3 == 2 else size
        for answer in _exchange(sender, says.hello(key, length)):
            read = read_greeting(key, answer)
            if read is None or read[:4] != says.answer:
                continue
            _check_engine(address, options, adds_only_integers=read[4])
            if len(answer) == size:
                return
            small_passed = True
    if small_passed:
        raise Timeout(
            f"datagrams of {size} bytes get lost on the way to the aggregator at {address}, and "
            f"smaller ones do not: set SPARSEWIRE_DATAGRAM to what the path takes, such as 1472"
        )
    above = " and `--parent`, the parent too," if options.rack else ","
    raise Timeout(
        f"no datagram came back from the aggregator at {address} within {TRY_S:g} s: start it with "
        f"`--transport {options.transport}`{above} and let UDP port {address.port} through the "
        "firewall both ways, or set SPARSEWIRE_TRANSPORT=tcp"
    )


def _attempts() -> Iterator[int]:
    deadline = time.monotonic() + TRY_S
    attempt, pause = 0, _PAUSE_S
    while time.monotonic() < deadline:
        yield attempt
        attempt += 1
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(1.5 * pause, _PAUSE_MAX_S)


def _exchange(sender: socket.socket, words: bytes) -> Iterator[bytes]:
    """Send, and read what has come by now, which answers what was sent before."""
    with _nobody_may_listen():
        sender.send(words)
    time.sleep(_PAUSE_S / 4)
    while True:
        try:
            yield sender.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionRefusedError:
            continue


@contextmanager
def _nobody_may_listen() -> Iterator[None]:
    """Whoever is not there yet may come; a datagram that is too long is lost like any other."""
    try:
        with contextlib.suppress(ConnectionRefusedError, BlockingIOError):
            yield
    except OSError as error:
        if error.errno != errno.EMSGSIZE:
            raise


def _check_engine(address: Address, options: Options, *, adds_only_integers: bool) -> None:
    if adds_only_integers and not options.adds_in_fixed_point:
        raise Error(
            f"the aggregator at {address} adds in fixed point only: set SPARSEWIRE_TRANSPORT=xdp, "
            "or SPARSEWIRE_ARITHMETIC=fixed, on all ranks"
        )
    if adds_only_integers and options.transport != "xdp":
        raise Error(
            f"the aggregator at {address} adds in its kernel: set SPARSEWIRE_TRANSPORT=xdp on all "
            "ranks"
        )
