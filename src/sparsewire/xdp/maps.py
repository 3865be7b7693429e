"""The maps that the programs share with this process, and the layout of what is in them (bpf/*.h)."""

from __future__ import annotations

import ctypes
from ctypes import c_uint8, c_uint16, c_uint32, c_uint64
from typing import Generic, TypeVar

from sparsewire.xdp.libbpf import library
from sparsewire.xdp.tag_key import WORDS

JOBS_MAX, SLOTS, WORKERS_MAX, BLOCK_MAX = 8, 128, 32, 256


class Job(ctypes.Structure):
    """struct job, its tag_key taken apart."""

    _fields_ = (
        ("epoch", c_uint32),
        ("workers", c_uint32),
        ("tag_key", c_uint8 * (16 + 4 * WORDS)),
    )


class Worker(ctypes.Structure):
    """struct worker. Addresses and the port are as on the wire."""

    _fields_ = (
        ("address", c_uint8 * 4),
        ("port", c_uint8 * 2),
        ("zero", c_uint16),
        ("local", c_uint8 * 4),
        ("ends", c_uint8 * 12),
    )


class Counters(ctypes.Structure):
    """struct counters: what one processor has counted of one job."""

    _fields_ = tuple(
        (name, c_uint64)
        for name in (
            "contributions",
            "duplicates",
            "stale",
            "rejected",
            "results",
            "resent",
            "recalls",
        )
    )


class Version(ctypes.Structure):
    """struct version: one of the two rounds of a slot."""

    _fields_ = (
        ("turn", c_uint32),
        ("missing", c_uint32),
        ("reach", c_uint32),
        ("block", c_uint16),
        ("exponent", c_uint8),
        ("present", c_uint8),
        ("last", c_uint16),
        ("told", c_uint16),
        ("zero", c_uint32),
        ("sums", c_uint32 * BLOCK_MAX),
    )


class Slot(ctypes.Structure):
    """struct slot."""

    _fields_ = (("lock", c_uint32), ("zero", c_uint32), ("version", Version * 2))


class Copies(ctypes.Structure):
    """struct bpf_devmap_val: an interface, and the program that addresses what goes there."""

    _fields_ = (("interface", c_uint32), ("program", c_uint32))


Value = TypeVar("Value")
Key = int


class Map(Generic[Value]):
    """One map, by its descriptor. Keys are numbers; methods raise OSError where the kernel refuses."""

    def __init__(self, descriptor: int, value: type[Value], key: type = c_uint32) -> None:
        self.descriptor = descriptor
        self._value, self._key = value, key

    def __getitem__(self, key: int) -> Value:
        """What stands there; raises KeyError where nothing does."""
        value = self._value()
        try:
            library().bpf_map_lookup_elem(self.descriptor, self._at(key), self._pointer(value))
        except FileNotFoundError:
            raise KeyError(key) from None
        return value

    def __setitem__(self, key: int, value: Value) -> None:
        library().bpf_map_update_elem(self.descriptor, self._at(key), self._pointer(value), 0)

    def __delitem__(self, key: int) -> None:
        library().bpf_map_delete_elem(self.descriptor, self._at(key))

    def _at(self, key: int) -> object:
        return ctypes.byref(self._key(key))

    @staticmethod
    def _pointer(value: Value) -> object:
        return ctypes.byref(value)  # type: ignore[arg-type]
