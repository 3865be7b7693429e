"""Loads XDP programs and attaches them; and one that only passes packets on."""

import ctypes
import os
import platform
import struct
from collections.abc import Sequence

from pyroute2 import IPRoute

_CALL = {"x86_64": 321, "aarch64": 280}
"""The number of the system call bpf."""
_PROG_LOAD, _TYPE_XDP = 5, 6
# Packets may have several fragments, as large ones do.
_HAS_FRAGMENTS = 1 << 5

PASS = 2
_SET, _EXIT = 0xB7, 0x95


def instruction(code: int, *, to: int = 0, of: int = 0, offset: int = 0, value: int = 0) -> bytes:
    """One instruction of eBPF: registers `to` and `of`, an offset in memory or code, a constant."""
    return struct.pack("=BBhi", code, to | of << 4, offset, value)


def returning(action: int) -> list[bytes]:
    """The end of a program: what is to become of the packet."""
    return [instruction(_SET, value=action), instruction(_EXIT)]


def attach(interface: str, program: Sequence[bytes]) -> None:
    """Run a program on an interface of this namespace for as long as that exists.

    Raises OSError, or NetlinkError, where the kernel refuses.
    """
    descriptor = _load(program)
    try:
        with IPRoute() as route:
            index = route.link_lookup(ifname=interface)[0]
            route.link("set", index=index, xdp_fd=descriptor)
    finally:
        os.close(descriptor)


def accept(interface: str) -> None:
    """Have an interface take what XDP programs at the other end of its cable send.

    A veth does while it has a program itself. Where it only polls, for GRO, it takes what is
    redirected to it, and forgets to look for what the other end sends back (XDP_TX).
    """
    attach(interface, returning(PASS))


def _load(program: Sequence[bytes]) -> int:
    code = ctypes.create_string_buffer(b"".join(program))
    its_license = ctypes.create_string_buffer(b"Apache-2.0")
    kind = _TYPE_XDP, len(program), ctypes.addressof(code), ctypes.addressof(its_license)
    attributes = struct.pack("=IIQQIIQII", *kind, 0, 0, 0, 0, _HAS_FRAGMENTS)
    number = _CALL.get(platform.machine())
    if number is None:
        raise OSError(f"cannot load a program for XDP on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.syscall(number, _PROG_LOAD, attributes, len(attributes)))
    if descriptor < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot load a program for XDP: {os.strerror(error)}")
    return descriptor
