"""Tries whether what programs send at an interface leaves it, as far as its driver tells."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

from sparsewire.xdp import libbpf
from sparsewire.xdp.libbpf import library
from sparsewire.xdp.loader import Programs, interface_index

_SIOCETHTOOL = 0x8946
_GET_DRIVER, _GET_STRINGS, _GET_STATS = 0x03, 0x1B, 0x1D
_OF_STATS, _NAME_BYTES = 1, 32
_DRIVER_INFO = struct.Struct("I32s32s32s32s32s12s5I")
# A type of frames for experiments (IEEE 802), to nobody: nothing hears it.
_FRAME = bytes(12) + b"\x88\xb5" + bytes(46)
_SENT = "_xdp_xmit"


def is_heard(interface: str, programs: Programs) -> bool:
    """Whether a redirected packet leaves; True where the driver is no veth's, which cannot tell.

    A veth refuses it unless its other end polls: has GRO on, or a program.
    """
    if _driver(interface)[0] != "veth":
        return True
    before = _sent(interface)
    _redirect(interface, programs)
    return _sent(interface) > before


class _Context(ctypes.Structure):
    """struct xdp_md."""

    _fields_ = tuple(
        (name, ctypes.c_uint32)
        for name in ("data", "data_end", "data_meta", "ingress", "rx_queue", "egress")
    )


def _redirect(interface: str, programs: Programs) -> None:
    frame = ctypes.create_string_buffer(_FRAME, len(_FRAME))
    context = _Context(data_end=len(_FRAME), ingress=interface_index(interface))
    options = libbpf.RunOptions(
        size=ctypes.sizeof(libbpf.RunOptions),
        data_in=ctypes.addressof(frame),
        data_size_in=len(_FRAME),
        context_in=ctypes.addressof(context),
        context_size_in=ctypes.sizeof(context),
        repeat=1,
        flags=libbpf.RUN_LIVE,
    )
    library().bpf_prog_test_run_opts(programs.program("try_way_out"), ctypes.byref(options))


def _driver(interface: str) -> tuple[str, int]:
    """Name, and how many statistics it keeps."""
    told = _ask(interface, _DRIVER_INFO.pack(_GET_DRIVER, *[b""] * 6, *[0] * 5))
    _, name, *_, counted, _, _, _ = _DRIVER_INFO.unpack(told)
    return name.rstrip(b"\0").decode(), counted


def _sent(interface: str) -> int:
    """Packets of programs that the other end has taken."""
    return sum(n for name, n in statistics(interface) if name.endswith(_SENT))


def statistics(interface: str) -> list[tuple[str, int]]:
    """Counters of an interface's driver, by its names. Raises OSError if it has none."""
    count = _driver(interface)[1]
    head = struct.pack("3I", _GET_STRINGS, _OF_STATS, count)
    told = _ask(interface, head + bytes(_NAME_BYTES * count))[len(head) :]
    names = [told[at : at + _NAME_BYTES].rstrip(b"\0").decode() for at in range(0, len(told), 32)]
    values = _ask(interface, struct.pack("2I", _GET_STATS, count) + bytes(8 * count))
    figures = struct.unpack(f"{count}Q", values[8:])
    return list(zip(names, figures, strict=True))


def _ask(interface: str, question: bytes) -> bytes:
    """The driver's answer, which it writes over the question; raises OSError without one."""
    memory = ctypes.create_string_buffer(question, len(question))
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(memory))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
    return memory.raw
