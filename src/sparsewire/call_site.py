"""Where in a program a collective was called: what SPARSEWIRE_DEBUG=1 has ranks compare."""

from __future__ import annotations

import sys
import threading
import zlib
from collections import OrderedDict
from pathlib import Path
from types import FrameType
from typing import NamedTuple

_OURS = {"sparsewire", "torch"}
_KEPT = 4096


class CallSite(NamedTuple):
    """A function of a file, in a thread; `number` is the same for the same ones on every rank."""

    number: int
    text: str

    @classmethod
    def here(cls) -> CallSite | None:
        """That of the innermost function outside this package and torch; None without any."""
        frame = _user_frame()
        if frame is None:
            return None
        code = frame.f_code
        # Hosts may keep a program in different folders, and ranks may call from different lines.
        function = getattr(code, "co_qualname", code.co_name)
        where = f"{function} in {Path(code.co_filename).name}, thread {_thread_name()}"
        return cls(zlib.crc32(where.encode()) or 1, f"line {frame.f_lineno}, {where}")


def _user_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _package(frame) in _OURS:
        frame = frame.f_back
    return frame


def _package(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0]


def _thread_name() -> str:
    return threading.current_thread().name


class CallSites:
    """Those of the last few thousand operations, by their number in the engine."""

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
