"""Has the kernel refuse something to this process, as a host does that is short of descriptors.

Both hold for the calling thread and for those that it starts afterwards.
"""

from __future__ import annotations

import ctypes
import platform
import resource

import pytest

_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_CAPABILITIES_VERSION = 0x20080522
_SENDMSG = {"x86_64": 46, "aarch64": 211}

needs_filter = pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() not in _SENDMSG, reason="no filter for it"
)


class _Rule(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("rules", ctypes.POINTER(_Rule)))


def refuse_to_pass_descriptors(error: int) -> None:
    """From now on sendmsg, which passes descriptors and which Python does not use, ends so."""
    rules = (_Rule * 4)(
        (_LOAD, 0, 0, 0),  # the number of the call
        (_JUMP_EQUAL, 0, 1, _SENDMSG[platform.machine()]),
        (_RETURN, 0, 0, _ERROR | error),
        (_RETURN, 0, 0, _ALLOW),
    )
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
    assert libc.prctl(_SECCOMP, _FILTER, ctypes.byref(_Program(4, rules)), 0, 0) == 0


def become_ordinary(descriptors: int) -> None:
    """Give up what only root may do, and have no more than so many descriptors.

    The system then lets all processes of the user together have no more than so many on their way
    from one to another.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    assert ctypes.CDLL(None, use_errno=True).capset(header, (ctypes.c_uint32 * 6)()) == 0
