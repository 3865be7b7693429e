"""The place in a program that called a collective. With SPARSEWIRE_DEBUG=1, ranks compare it."""

from __future__ import annotations

import re
import sys
import sysconfig
import threading
import zlib
from collections import OrderedDict
from pathlib import Path
from types import FrameType
from typing import NamedTuple

_OURS = {"sparsewire", "torch"}
_STANDARD = sysconfig.get_paths()["stdlib"]
_INSTALLED = ("site-packages", "dist-packages")
_KEPT = 4096
# Numbers in names of threads. Threads get them as they start, in any order, so ranks may differ.
_GIVEN = re.compile(r"[-_]\d+(?=\b|_)")


class CallSite(NamedTuple):
    """A function of a file, in a thread. All ranks give these three the same `number`."""

    number: int
    text: str

    @classmethod
    def here(cls) -> CallSite | None:
        """The innermost function outside this package, torch and Python's own modules.

        None if there is no such function.
        """
        frame = _user_frame()
        if frame is None:
            return None
        code = frame.f_code
        # Hosts may keep a program in different folders, and ranks may call from different lines.
        function = getattr(code, "co_qualname", code.co_name)
        where = f"{function} in {Path(code.co_filename).name}, thread"
        thread = threading.current_thread().name
        number = zlib.crc32(f"{where} {_GIVEN.sub('', thread)}".encode()) or 1
        return cls(number, f"line {frame.f_lineno}, {where} {thread}")


def _user_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_users(frame):
        frame = frame.f_back
    return frame


def _is_users(frame: FrameType) -> bool:
    if _package(frame) in _OURS:
        return False
    file = frame.f_code.co_filename
    is_pythons = file.startswith(_STANDARD) and not any(part in file for part in _INSTALLED)
    return not is_pythons and not file.startswith("<frozen")


def _package(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0]


class CallSites:
    """Call sites of the last few thousand operations, by the operations' numbers in the engine."""

    def __init__(self) -> None:
        self._sites: OrderedDict[int, CallSite] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, seq: int, site: CallSite) -> None:
        with self._lock:
            self._sites[seq] = site
            if len(self._sites) > _KEPT:
                self._sites.popitem(last=False)

    def of(self, seq: int) -> CallSite | None:
        return self._sites.get(seq)
