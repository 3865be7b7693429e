"""Greets an aggregator until datagrams of full size have come back, the way that results take."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from sparsewire._core import greeting, read_greeting
from sparsewire.errors import Error, Timeout
from sparsewire.meeting.contact.dial import Membership
from sparsewire.meeting.contact.handshake import KERNEL_WORKERS_MAX
from sparsewire.meeting.contact.keys import WayKeys
from sparsewire.meeting.contact.racks import RackPlace
from sparsewire.options import DATAGRAM_MIN, Address, Options

HELLO, WELCOME, NOTED = 4, 5, 6
TRY_S = 5.0
_PAUSE_S = 0.02
_PAUSE_MAX_S = 0.2
# A header and one record; and the values that a program in the kernel reads at a time.
_HEAD, _STEP, _VALUE = 48, 16, 4


class Probe(IntEnum):
    """What a hello finds out. Its number holds the probe, and the answer has the same number.

    The program in the kernel answers a long hello by a redirect, and a short one from a longer
    packet.
    """

    FULL = 0
    SHORT = 1
    PROCESS = 2
    NARROW = 3


# The first hello tells the process its worker. Now and then the process alone is asked, to
# tell what fails: the way of results, a path that is too narrow, or one that is closed.
_OF_KERNEL = (
    *(Probe.FULL, Probe.SHORT, Probe.PROCESS),
    *(Probe.FULL, Probe.SHORT, Probe.PROCESS, Probe.NARROW),
)
_OF_PROCESS = (Probe.PROCESS, Probe.PROCESS, Probe.NARROW)
# Nothing more is waited for where a process has noted greetings so often and so long, and its
# kernel has not answered both kinds. Losses of 20% each way hide all answers of one kind from one
# start in 500.
_NOTED_ENOUGH, _NOTED_S = 3, 2.5


def probe_of(number: int) -> Probe:
    """The probe that the number of a greeting holds."""
    return Probe(number % len(Probe))


def block_of(size: int) -> int:
    """Values of the largest result in `size` bytes that a program in the kernel sends."""
    return (size - _HEAD) // (_STEP * _VALUE) * _STEP


def bytes_of(block: int) -> int:
    """Bytes of a result with so many values."""
    return _HEAD + block * _VALUE


def readable(size: int) -> int:
    """The least size, from this one on, of a greeting whose tag programs in the kernel can read."""
    return bytes_of(block_of(size + _STEP * _VALUE - 1))


@dataclass(frozen=True)
class Greeting:
    """A rank's greeting to an aggregator by one of its `flows`.

    `size` is that of the largest datagram in bytes.
    """

    member: Membership
    at: RackPlace
    size: int
    flow: int
    flows: int
    asks_kernel: bool
    keys: WayKeys

    @property
    def full(self) -> int:
        """Bytes of what must pass both ways."""
        return bytes_of(block_of(self.size)) if self.asks_kernel else self.size

    @property
    def probes(self) -> tuple[Probe, ...]:
        """Probes in order, without NARROW if datagrams are too short to tell a narrow path."""
        all_of = _OF_KERNEL if self.asks_kernel else _OF_PROCESS
        return tuple(one for one in all_of if one != Probe.NARROW or self.full > DATAGRAM_MIN)

    def hello(self, number: int) -> bytes:
        probe = probe_of(number)
        length = {Probe.SHORT: bytes_of(_STEP), Probe.NARROW: DATAGRAM_MIN}.get(probe, self.full)
        block = block_of(self.size) if probe in (Probe.FULL, Probe.SHORT) else 0
        at, member = self.at, self.member
        party = (at.workers, member.world_size, at.rack, at.racks, self.size, self.flows)
        place = member.job, member.epoch, at.worker
        return greeting(
            self.keys.up,
            *(HELLO, *place, length, party),
            number=number,
            block=block,
            flow=self.flow,
        )

    def is_to(self, read: tuple[object, ...]) -> bool:
        """Whether an answer is to this one."""
        place = self.member.job, self.member.epoch, self.at.worker, self.flow
        return read[0] in (WELCOME, NOTED) and (*read[1:4], read[8]) == place

    @property
    def by(self) -> str:
        """Names the flow for an error, if other flows have passed."""
        return f" by flow {self.flow + 1} of {self.flows}, although others did," * bool(self.flow)


@dataclass
class Heard:
    """The answers that have come back so far."""

    full: int
    adds_in_kernel: bool = False
    welcomed: set[int] = field(default_factory=set)
    """Probes that were welcomed with a datagram of full size."""
    noted: set[int] = field(default_factory=set)
    """Bytes of what the process has answered where its kernel adds up."""
    noted_in_full: list[float] = field(default_factory=list)
    """When it has answered those of full size."""
    bound_at: int | None = None
    """The number of the last hello that was said when the process was first heard."""
    passes_by: bool = False
    """The process was left hellos that its programs would have answered, had they seen them."""

    def note(
        self, kind: int, number: int, length: int, *, in_kernel: bool, said: int, now: float
    ) -> None:
        """Take in the answer to this number; the last hello so far had the number `said`."""
        self.adds_in_kernel |= in_kernel
        if kind == NOTED or length != self.full:
            self._note_process(number, length, said, now)
        else:
            self.welcomed.add(probe_of(number))

    def _note_process(self, number: int, length: int, said: int, now: float) -> None:
        self.noted.add(length)
        if length == self.full:
            self.noted_in_full.append(now)
        if self.bound_at is None:
            self.bound_at = said
        self.passes_by |= probe_of(number) == Probe.FULL and number > self.bound_at

    @property
    def is_enough(self) -> bool:
        needed = {Probe.FULL, Probe.SHORT}
        return needed <= self.welcomed if self.adds_in_kernel else bool(self.welcomed)

    def is_hopeless(self, now: float) -> bool:
        """Whether the process has been heard for long enough, and its kernel's way still fails."""
        noted = self.noted_in_full
        is_long = len(noted) >= _NOTED_ENOUGH and now - noted[0] >= _NOTED_S
        return is_long and not self.is_enough


class Met(NamedTuple):
    """An aggregator that has answered: to which number at the latest, and what it adds up in."""

    number: int
    in_kernel: bool


def greet(sender: socket.socket, address: Address, options: Options, says: Greeting) -> Met:
    """Greet, again and again, until datagrams of full size have come back.

    Raises Timeout where none do within 5 s, or where the process was heard for 2.5 s and what its
    kernel sends was not, or Error where the engine there is another one.
    """
    heard = Heard(says.full)
    for number in _numbers(says.probes):
        for answer in _exchange(sender, says.hello(number)):
            read = read_greeting(says.keys.down, answer)
            if read is None or not says.is_to(read):
                continue
            _check_engine(address, options, adds_only_integers=read[4])
            kind, again, now = read[0], read[6], time.monotonic()
            heard.note(kind, again, len(answer), in_kernel=read[4], said=number, now=now)
        if heard.is_enough:
            return Met(number, heard.adds_in_kernel)
        if heard.is_hopeless(time.monotonic()):
            break
    raise Timeout(trouble(heard, address, options, says))


_REDIRECTS = (
    "redirected packets get lost at its interface. If that is a veth, turn GRO on at the other "
    "end, `ethtool -K DEV gro on`; a card needs a queue to send by for each processor, `ethtool -L "
    "DEV combined N`, and must leave tags of VLANs where they are, `ethtool -K DEV rxvlan off`"
)
_ELSEWHERE = (
    "datagrams come in by another interface than its `--interface`: start it with the one that "
    "they come by"
)


def trouble(heard: Heard, address: Address, options: Options, says: Greeting) -> str:
    """An error text: which datagrams get lost, and what to do."""
    if heard.full in heard.noted:
        why = _ELSEWHERE if heard.passes_by else f"{_REDIRECTS}; or {_ELSEWHERE}"
        return (
            f"the aggregator at {address} hears this rank, and what its kernel sends does not come "
            f"back: {why}; or start the aggregator with `--transport udp`"
        )
    if heard.noted:
        return (
            f"datagrams of {heard.full} bytes get lost on the way to the aggregator at {address}, "
            "and smaller ones do not: set SPARSEWIRE_DATAGRAM to what the path takes, such as 1472"
        )
    if says.asks_kernel and says.at.workers > KERNEL_WORKERS_MAX:
        return (
            f"no datagram came back from the aggregator at {address}: in its kernel it adds up for "
            f"{KERNEL_WORKERS_MAX} ranks at most, and this rack has {says.at.workers}. Start it "
            "with `--transport udp`, or make more racks"
        )
    above = " and `--parent`, the parent too," if options.rack else ","
    return (
        f"no datagram came back from the aggregator at {address}{says.by} within {TRY_S:g} s: "
        f"start it with `--transport {options.transport}`{above} and let UDP port {address.port} "
        "through the firewall both ways, or set SPARSEWIRE_TRANSPORT=tcp"
    )


def _numbers(probes: tuple[Probe, ...]) -> Iterator[int]:
    """Ascending numbers of attempts for TRY_S seconds, with a pause behind each."""
    deadline = time.monotonic() + TRY_S
    attempt, pause = 0, _PAUSE_S
    while time.monotonic() < deadline:
        probe = probes[attempt % len(probes)]
        attempt += 1
        yield attempt * len(Probe) + probe
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
    """Ignore that nobody listens yet, and that a datagram is too long: both count as losses."""
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
