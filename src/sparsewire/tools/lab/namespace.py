"""One network namespace, the thread that lives in it, and the names that its programs see.

On Linux a network namespace belongs to a thread, and a child process starts in that of the thread
which made it. So a namespace here is a thread: work given to it happens inside, and nothing else in
the process notices. It has no name in the file system: the kernel takes it away with the last
process and descriptor that use it, so there is nothing to leave behind.
"""

import contextlib
import ctypes
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_HOSTS_FILE = "/etc/hosts"

_CLONE_NEWNET = 0x40000000
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_SLAVE = 0x80000


class Namespace:
    """A new network namespace with nothing but a loopback interface, which is down.

    Raises OSError (EPERM) where the process may not create one.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"lab-{name}")
        try:
            self.descriptor = self.call(_enter_new)
        except BaseException:
            self._thread.shutdown()
            raise
        status = os.fstat(self.descriptor)
        self.identity = status.st_dev, status.st_ino

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` inside the namespace; return its result, or raise what it raised."""
        return self._thread.submit(function, *args, **kwargs).result()

    def close(self) -> None:
        """Let go of the namespace. It is gone once no process is left in it."""
        self._thread.shutdown()
        os.close(self.descriptor)


def interface_name(link: int) -> str:
    """The name of a host's interface to one of its links."""
    return f"eth{link}"


def publish(hosts: Sequence[Namespace], addresses: Sequence[str]) -> None:
    """Let `hosts` see a host name of their own, and a hosts file that lists all of them.

    Raises OSError where the process may not mount.
    """
    with _hosts_file(hosts, addresses) as path:
        for host in hosts:
            host.call(_enter_named, path, host.name)


@contextlib.contextmanager
def _hosts_file(hosts: Sequence[Namespace], addresses: Sequence[str]) -> Iterator[str]:
    lines = [
        f"{form} {host.name}\n"
        for host, own in zip(hosts, addresses, strict=True)
        # A dual-stack socket, such as torch's store has, looks up the IPv6 form of an IPv4 address.
        for form in ([own] if ":" in own else [own, f"::ffff:{own}"])
    ]
    own = Path(_HOSTS_FILE)
    inherited = own.read_text(encoding="utf-8", errors="replace") if own.exists() else ""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="sparsewire-hosts-") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(inherited.rstrip("\n") + "\n" + "".join(lines))
        file.flush()
        # Once mounted, the file lives on without its name, and is gone with the last host.
        yield file.name


def _enter_new() -> int:
    _unshare(_CLONE_NEWNET)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _enter_named(hosts_file: str, own_name: str) -> None:
    _unshare(_CLONE_NEWNS | _CLONE_NEWUTS)
    # Mounts made outside still arrive in here, those made in here stay in here.
    _mount("none", "/", _MS_REC | _MS_SLAVE)
    _mount(hosts_file, _HOSTS_FILE, _MS_BIND)
    socket.sethostname(own_name)


def _unshare(flags: int) -> None:
    """Move the calling thread into new namespaces of the kinds in `flags` (CLONE_NEW...)."""
    _call_system("cannot create a namespace", "unshare", flags)


def _mount(source: str, target: str, flags: int) -> None:
    paths = source.encode(), target.encode()
    _call_system(f"cannot mount {target}", "mount", *paths, None, ctypes.c_ulong(flags), None)


def _call_system(failure: str, function: str, *arguments: object) -> None:
    """Call a function of the C library that returns 0; raises OSError, with `failure`, if not."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc[function](*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{failure}: {os.strerror(number)}")
