"""The maps that the programs share with this process, and what is in them; bpf/*.h has the same."""

from __future__ import annotations

import ctypes
from ctypes import c_uint8, c_uint16, c_uint32, c_uint64
from ipaddress import ip_address
from typing import Generic, TypeVar

from sparsewire.errors import Error
from sparsewire.xdp.libbpf import library
from sparsewire.xdp.tag_key import WORDS, tag_key

MAPPED = bytes(10) + b"\xff\xff"

KEY_SIZE = 16 + 4 * WORDS

JOBS_MAX, SLOTS, WORKERS_MAX, FLOWS_MAX, BLOCK_MAX = 8, 128, 32, 8, 256


class Job(ctypes.Structure):
    """struct job, its keys as bytes: up and down, and those of the parent."""

    _fields_ = (
        ("epoch", c_uint32),
        ("workers", c_uint32),
        ("flows", c_uint32),
        ("zero", c_uint32),
        ("keys", c_uint8 * (2 * KEY_SIZE)),
        ("above", c_uint8 * (2 * KEY_SIZE)),
    )

    @classmethod
    def of(
        cls,
        epoch: int,
        workers: int,
        keys: tuple[bytes, bytes],
        above: tuple[bytes, bytes] | None = None,
    ) -> Job:
        drawn = (b"".join(map(tag_key, each)) for each in (keys, above or ()))
        return cls(
            epoch, workers, 1, 0, *(_array(each.ljust(2 * KEY_SIZE, b"\0")) for each in drawn)
        )


class Worker(ctypes.Structure):
    """struct worker: one flow of a worker. Addresses and the port are as on the wire, IPv4 as
    mapped into IPv6."""

    _fields_ = (
        ("address", c_uint8 * 16),
        ("port", c_uint8 * 2),
        ("is_known", c_uint16),
        ("local", c_uint8 * 16),
        ("ends", c_uint8 * 12),
        ("greeted", c_uint64),
    )

    @classmethod
    def at(cls, host: str, port: int) -> Worker:
        """A worker that sends from an address; raises Error for what is no address."""
        return cls(_array(packed(host)), _array(port.to_bytes(2, "big")))

    def is_at(self, other: Worker) -> bool:
        """Whether both send from the same address and port."""
        own, others = ((bytes(each.address), bytes(each.port)) for each in (self, other))
        return own == others

    @property
    def is_bound(self) -> bool:
        return any(self.port)

    @property
    def is_v6(self) -> bool:
        return not bytes(self.address).startswith(MAPPED)


def place_of(job: int, worker: int, flow: int) -> int:
    """The index of a worker's flow in its map; `job` is the job's place."""
    return (job * WORKERS_MAX + worker) * FLOWS_MAX + flow


class Parent(ctypes.Structure):
    """struct parent: the aggregator above, and which of its workers this one is."""

    _fields_ = (
        ("at", Worker),
        ("rack", c_uint16),
        ("racks", c_uint16),
        ("way_up", c_uint16),
        ("zero", c_uint16),
    )

    @classmethod
    def at_root(cls, host: str, port: int, rack: int, racks: int) -> Parent:
        """A parent that listens at an address; raises Error for what is no address."""
        return cls(Worker.at(host, port), rack, racks)


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
            "passed",
            "passed_again",
        )
    )

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name, *_ in self._fields_}


class Version(ctypes.Structure):
    """struct version: one of the two rounds of a slot."""

    _fields_ = (
        ("turn", c_uint64),
        ("missing", c_uint32),
        ("reach", c_uint32),
        ("block", c_uint16),
        ("exponent", c_uint8),
        ("present", c_uint8),
        ("last", c_uint16),
        ("told", c_uint16),
        ("phase", c_uint8),
        ("urged", c_uint8),
        ("zeros", c_uint16 * 3),
        ("sums", c_uint32 * BLOCK_MAX),
    )


class Slot(ctypes.Structure):
    """struct slot."""

    _fields_ = (("lock", c_uint32), ("zero", c_uint32), ("version", Version * 2))


class Copies(ctypes.Structure):
    """struct bpf_devmap_val: an interface, and the program that addresses what goes there."""

    _fields_ = (("interface", c_uint32), ("program", c_uint32))


def packed(host: str) -> bytes:
    """The 16 bytes of an address; raises Error for what is none."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError as error:
        raise Error(f"{host} is no address that a worker can be bound to: {error}") from None
    return MAPPED + address.packed if address.version == 4 else address.packed


def _array(data: bytes) -> ctypes.Array[c_uint8]:
    return (c_uint8 * len(data)).from_buffer_copy(data)


Value = TypeVar("Value")


class Map(Generic[Value]):
    """One map, by its descriptor. Keys are numbers; raises OSError if the kernel refuses."""

    def __init__(self, descriptor: int, value: type[Value], key: type = c_uint32) -> None:
        self.descriptor = descriptor
        self._value, self._key = value, key

    def __getitem__(self, key: int) -> Value:
        """The value of a key; raises KeyError if it has none."""
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
