"""Loads the compiled programs, and attaches them to interfaces while this process lives."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from contextlib import ExitStack
from ctypes import c_size_t
from pathlib import Path

from sparsewire.errors import Error
from sparsewire.xdp import libbpf
from sparsewire.xdp.capabilities import NEEDED, missing_capabilities
from sparsewire.xdp.libbpf import LinkOptions, library

_OBJECT = "slots.bpf.o"


class NoXdpError(Error):
    """The driver of an interface takes no XDP, or not as the interface is set up."""


def object_path() -> Path:
    """The compiled programs: $SPARSEWIRE_BPF, or beside this module. Raises Error if missing."""
    named = os.environ.get("SPARSEWIRE_BPF")
    path = Path(named) if named else Path(__file__).with_name(_OBJECT)
    if not path.is_file():
        raise Error(
            f"the programs for the kernel are not compiled: {path} is missing. Run `make bpf` in "
            "a checkout of sparsewire, with clang and Debian's libbpf-dev, and set SPARSEWIRE_BPF "
            f"to the {_OBJECT} that it makes where that is not beside the package"
        )
    return path


class Programs:
    """The programs in the kernel, with maps of their own; they are gone once this is closed."""

    def __init__(self, path: Path, constants: bytes) -> None:
        """Load what was compiled to `path`, with its constants set. Raises Error."""
        with ExitStack() as stack:
            self._object = _opened(path)
            stack.callback(library().bpf_object__close, self._object)
            self._set_constants(constants)
            _load(self._object)
            self._resources = stack.pop_all()

    def map(self, name: str) -> int:
        """The descriptor of a map."""
        found = library().bpf_object__find_map_by_name(self._object, name.encode())
        return int(library().bpf_map__fd(found))

    def program(self, name: str) -> int:
        """The descriptor of a program."""
        found = library().bpf_object__find_program_by_name(self._object, name.encode())
        return int(library().bpf_program__fd(found))

    def attach(self, program: str, interface: str, hook: int) -> None:
        """Let everything that `interface` receives pass through a program. Raises Error."""
        self._resources.callback(os.close, link(self.program(program), interface, hook))

    def close(self) -> None:
        """Take the programs from where they are attached, and out of the kernel."""
        self._resources.close()

    def _set_constants(self, constants: bytes) -> None:
        """Write what is constant to the programs: a map of its own, until they are loaded."""
        size, each = c_size_t(), None
        while each := library().bpf_object__next_map(self._object, each):
            if library().bpf_map__name(each).endswith(b".rodata"):
                memory = library().bpf_map__initial_value(each, ctypes.byref(size))
                ctypes.memmove(memory, constants, min(len(constants), size.value))


def interface_index(interface: str) -> int:
    """Raises Error where there is none of that name."""
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        names = ", ".join(name for _, name in socket.if_nameindex())
        raise Error(f"there is no interface {interface} here, but {names}") from None


def _opened(path: Path) -> int:
    try:
        return int(library().bpf_object__open_file(os.fsencode(path), None))
    except OSError as error:
        raise Error(
            f"{path} cannot be read as programs for the kernel ({error}): make it again with "
            "`make bpf`"
        ) from error


def _load(programs: int) -> None:
    try:
        library().bpf_object__load(programs)
    except OSError as error:
        # The verifier refuses with EACCES, too, what takes a right that is not there.
        missing = missing_capabilities()
        if error.errno == errno.EPERM or (error.errno == errno.EACCES and missing):
            lacks = f"this process lacks {', '.join(missing)}; " if missing else ""
            raise Error(
                f"no right to load programs into the kernel: {lacks}it takes {NEEDED}, which root "
                "has, as well as containers that are given them"
            ) from error
        raise Error(
            f"the kernel ({os.uname().release}) does not take the programs ({error}): they need "
            "Linux 6.6 or newer"
        ) from error


_ADVICE = {
    errno.EPERM: "it takes CAP_NET_ADMIN there, which root has",
    errno.EBUSY: "another program is there: `ip link show` names it",
    errno.EOPNOTSUPP: "its driver has no native XDP",
    errno.ERANGE: "the MTU of it or of its peer is too large for XDP",
    errno.ENOSPC: "it has fewer receive queues than its peer has transmit queues",
}
_NOT_THE_DRIVERS = (errno.EPERM, errno.EBUSY)


def link(program: int, interface: str, hook: int) -> int:
    """Attach at `hook` of an interface, native if XDP; the descriptor keeps it attached."""
    flags = libbpf.XDP_NATIVE if hook == libbpf.ATTACH_XDP else 0
    options = LinkOptions(ctypes.sizeof(LinkOptions), flags)
    index = interface_index(interface)
    try:
        return int(library().bpf_link_create(program, index, hook, ctypes.byref(options)))
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "is it native XDP that its driver lacks?")
        is_drivers = hook == libbpf.ATTACH_XDP and error.errno not in _NOT_THE_DRIVERS
        kind = NoXdpError if is_drivers else Error
        raise kind(f"{interface} takes no program ({error}): {advice}") from error
