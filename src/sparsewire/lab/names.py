"""Names and addresses of a lab's hosts: gives them out, and makes all known on every host."""

import contextlib
import ctypes
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from sparsewire.lab.namespace import Namespace, call_system, unshare

INTERFACE = "eth0"
HOSTS_FILE = "/etc/hosts"

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_SLAVE = 0x80000


def name(host: int) -> str:
    """Return the name of host number `host`."""
    return f"host{host}"


def address(host: int, ipv6: bool = False) -> str:
    """Return the IPv4 address of host number `host`, or its IPv6 address."""
    return f"fd00::{host + 1:x}" if ipv6 else f"10.0.0.{host + 1}"


def publish(hosts: Sequence[Namespace], addresses: Sequence[str]) -> None:
    """Let `hosts` see a host name of their own, and a hosts file that lists all of them.

    Raises OSError where the process may not mount.
    """
    with _hosts_file(addresses) as path:
        for number, host in enumerate(hosts):
            host.call(_enter_named, path, name(number))


@contextlib.contextmanager
def _hosts_file(addresses: Sequence[str]) -> Iterator[str]:
    lines = [
        f"{form} {name(host)}\n"
        for host, own in enumerate(addresses)
        # A dual-stack socket, such as torch's store has, looks up the IPv6 form of an IPv4 address.
        for form in ([own] if ":" in own else [own, f"::ffff:{own}"])
    ]
    own = Path(HOSTS_FILE)
    inherited = own.read_text(encoding="utf-8", errors="replace") if own.exists() else ""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="sparsewire-hosts-") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(inherited.rstrip("\n") + "\n" + "".join(lines))
        file.flush()
        # Once mounted, the file lives on without its name, and is gone with the last host.
        yield file.name


def _enter_named(hosts_file: str, own_name: str) -> None:
    unshare(_CLONE_NEWNS | _CLONE_NEWUTS)
    # Mounts made outside still arrive in here, those made in here stay in here.
    _mount("none", "/", _MS_REC | _MS_SLAVE)
    _mount(hosts_file, HOSTS_FILE, _MS_BIND)
    socket.sethostname(own_name)


def _mount(source: str, target: str, flags: int) -> None:
    paths = source.encode(), target.encode()
    call_system(f"cannot mount {target}", "mount", *paths, None, ctypes.c_ulong(flags), None)
