"""A window into this process for `sparsewire top`: a Unix socket that tells what it does.

Only the same user and root may look in. Its own thread sleeps until then: lanes and the
porter must not wait for each other, as an answer waits for the lanes.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from sparsewire.errors import ProtocolError
from sparsewire.fields import read_fields
from sparsewire.lifetime import disown_in_child, forget_in_child

_log = logging.getLogger(__name__)

_PREFIX = "sparsewire-top-"
"""Begins names in the abstract namespace: nothing is left of them, and a container has its own."""
_NAME = re.compile(
    rf"@(?P<name>{_PREFIX}(?P<pid>\d+)-\d+-(?P<group>[0-9a-f]*)-(?P<rank>\d+)-(?P<size>\d+)"
    r"-(?P<program>[\w.-]*))"
)
_LISTENING = 0x10000
_CREDENTIALS = struct.Struct("3i")
_PATIENCE_S = 3.0
DOCUMENT_MAX = 1 << 20

_PROGRAM_MAX = 40
"""Bytes: a name has 107 in all."""

Tell = Callable[[], dict[str, Any]]


class Member(NamedTuple):
    """A rank of a communicator, whose name `group` is alike on all ranks and no other's."""

    group: str
    rank: int
    world_size: int


NOBODY = Member("", 0, 0)


class Totals(TypedDict):
    """The counters of a communicator that are shown."""

    operations: int
    bytes_sent: int
    bytes_received: int
    datagram_bytes_sent: int
    datagram_bytes_received: int
    elements: int
    elements_sent: int


class OperationStatus(TypedDict):
    """The shown facts of an operation that is under way."""

    waits_for: list[Any]


class CommunicatorStatus(TypedDict):
    """The shown facts of a communicator. `number` is unique in its process."""

    number: int
    group: str
    rank: int
    world_size: int
    in_flight: int
    operations: list[OperationStatus]
    totals: Totals
    silent: dict[str, float]
    memory: dict[str, Any]


@dataclass(frozen=True)
class ProcessStatus:
    """The account of one process: the `Communicator.status` of each of its communicators."""

    pid: int
    program: str
    seconds: float
    """A clock of the process, to tell rates by."""
    communicators: tuple[dict[str, Any], ...]
    """Each is a `CommunicatorStatus`, and has more that only people read."""
    answers: bool = True
    first: Member = NOBODY
    """The member that the process is in its first communicator."""

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, document: bytes) -> ProcessStatus:
        """Raises ProtocolError for what `encode` has not made."""
        try:
            status = read_fields(cls, _printable(json.loads(document)))
            for each in status.communicators:
                read_fields(CommunicatorStatus, each)
            return status
        except (ValueError, RecursionError):
            raise ProtocolError("a process told what no status is") from None


def _printable(told: Any) -> Any:
    """A document without what would move a terminal's cursor, or change its colours."""
    if isinstance(told, str):
        return "".join(each if each.isprintable() else "?" for each in told)
    if isinstance(told, list):
        return [_printable(each) for each in told]
    if isinstance(told, dict):
        return {_printable(name): _printable(each) for name, each in told.items()}
    return told


class Shown:
    """A communicator's place in the window: seen from `show` to `hide`, which may come alone."""

    def show(self, tell: Tell, member: Member) -> None:
        _window.add(self, tell, member)

    def hide(self) -> None:
        _window.remove(self)


class _Window:
    """Open while there is something to be seen."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._shown: dict[Shown, tuple[int, str, Tell]] = {}
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._count = 0
        self._first = NOBODY

    def add(self, shown: Shown, tell: Tell, member: Member) -> None:
        with self._changing:
            self._shown[shown] = self._count, member.group, tell
            self._count += 1
            if self._listener is None:
                self._first = member
                self._open()

    def remove(self, shown: Shown) -> None:
        with self._changing:
            self._shown.pop(shown, None)
            thread = None if self._shown else self._close()
        # Whom it answers may keep it, but not for long.
        if thread is not None:
            thread.join(_PATIENCE_S)

    def _close(self) -> threading.Thread | None:
        """The thread that closes the listener, as it has to end."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
        thread, self._thread, self._listener = self._thread, None, None
        return thread

    def _open(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(f"\0{_name(self._count, self._first)}")
            listener.listen()
        except OSError as error:
            listener.close()
            _log.info("sparsewire top will not see this process: %s", error)
            return
        disown_in_child(listener, "close")
        # A daemon, so that a program that forgets to close its communicator still ends.
        self._thread = threading.Thread(
            target=self._serve, args=(listener,), name="sparsewire-window", daemon=True
        )
        self._thread.start()
        self._listener = listener

    def _serve(self, listener: socket.socket) -> None:
        with closing(listener):
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with closing(connection):
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(_PATIENCE_S)
            if _user_of(connection) in (os.geteuid(), 0):
                connection.sendall(self._status().encode())
        except OSError:
            pass  # The asking process is gone.
        except Exception:
            _log.exception("sparsewire top gets no answer")

    def _status(self) -> ProcessStatus:
        with self._changing:
            shown = list(self._shown.values())
        communicators = tuple(
            {"number": number, "group": group, **tell()} for number, group, tell in shown
        )
        told = os.getpid(), _program(), time.monotonic(), communicators
        return ProcessStatus(*told, first=self._first)


def _program() -> str:
    return Path(sys.argv[0]).name if sys.argv else ""


def _name(count: int, first: Member) -> str:
    """The name of a window. It tells of a process that is stopped and cannot tell."""
    program = re.sub(r"[^\w.-]", "_", _program(), flags=re.ASCII)[:_PROGRAM_MAX]
    return f"{_PREFIX}{os.getpid()}-{count}-{first.group}-{first.rank}-{first.world_size}-{program}"


_window = _Window()


def _forget() -> None:
    """In a forked child: begin without a window, as the child has nothing to show."""
    global _window
    _window = _Window()


forget_in_child(_forget)


def _user_of(connection: socket.socket) -> int:
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(data)
    return int(user)


def look(limit: float = _PATIENCE_S) -> list[ProcessStatus]:
    """The accounts of all processes of this user on this machine; root sees those of all users.

    A process that does not answer within `limit` seconds, because it is stopped or keeps Python's
    lock, is listed without communicators.
    """
    deadline = time.monotonic() + limit
    asked = [(silent, connection) for name, silent in _windows() for connection in _knock(name)]
    told = []
    for silent, connection in asked:
        with closing(connection):
            told += _hear(silent, connection, deadline)
    return sorted(told, key=lambda status: status.pid)


def _windows() -> Iterator[tuple[str, ProcessStatus]]:
    """Names of windows that are open here, and what is known of processes that say no more."""
    # Names are whatever their owners like: bytes that are no text, and ends of lines.
    for line in Path("/proc/net/unix").read_text(errors="replace").split("\n")[1:]:
        fields = line.split(maxsplit=7)
        named = len(fields) == 8 and _NAME.fullmatch(fields[7])
        if named and _is_listening(fields[3]):
            first = Member(named["group"], int(named["rank"]), int(named["size"]))
            status = ProcessStatus(int(named["pid"]), named["program"], 0.0, (), False, first)
            yield named["name"], status


def _is_listening(flags: str) -> bool:
    try:
        return bool(int(flags, 16) & _LISTENING)
    except ValueError:
        return False


def _knock(name: str) -> Iterator[socket.socket]:
    """A connection; none where the process has just gone, or is another user's."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.connect(f"\0{name}")
        if os.geteuid() in (_user_of(connection), 0):
            yield connection
            return
    except OSError:
        pass
    connection.close()


def _hear(silent: ProcessStatus, connection: socket.socket, deadline: float) -> list[ProcessStatus]:
    document = b""
    try:
        while True:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            data = connection.recv(1 << 16)
            if not data:
                break
            document += data
            if len(document) > DOCUMENT_MAX:
                raise ProtocolError("too long for a status")
        # The process may have closed the window meanwhile.
        return [ProcessStatus.decode(document)] if document else []
    except (OSError, ProtocolError):
        return [silent]
