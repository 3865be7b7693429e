"""One network namespace, and the thread that lives in it.

On Linux a network namespace belongs to a thread, and a child process starts in that of the thread
which made it. So a namespace here is a thread: work given to it happens inside, and nothing else in
the process notices. It has no name in the file system: the kernel takes it away with the last
process and descriptor that use it, so there is nothing to leave behind.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_CLONE_NEWNET = 0x40000000


class Namespace:
    """A new network namespace with nothing but a loopback interface, which is down.

    Raises OSError (EPERM) where the process may not create one.
    """

    def __init__(self, label: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"lab-{label}")
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


def unshare(flags: int) -> None:
    """Move the calling thread into new namespaces of the kinds in `flags` (CLONE_NEW...)."""
    call_system("cannot create a namespace", "unshare", flags)


def call_system(failure: str, function: str, *arguments: object) -> None:
    """Call a function of the C library that returns 0; raises OSError, with `failure`, if not."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc[function](*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{failure}: {os.strerror(number)}")


def _enter_new() -> int:
    unshare(_CLONE_NEWNET)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
