"""The few functions of libbpf.so.1 that loading the aggregator's programs takes, by ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from sparsewire.errors import Error

MAP_DEVMAP = 14
ATTACH_XDP, ATTACH_TC_INGRESS = 37, 46
XDP_NATIVE = 1 << 2
RUN_LIVE = 1 << 1

_PRINT = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)


class LinkOptions(ctypes.Structure):
    """bpf_link_create_opts, up to its flags."""

    _fields_ = (("size", c_size_t), ("flags", c_uint32), ("zero", c_uint32))


class RunOptions(ctypes.Structure):
    """bpf_test_run_opts."""

    _fields_ = (
        ("size", c_size_t),
        ("data_in", c_void_p),
        ("data_out", c_void_p),
        ("data_size_in", c_uint32),
        ("data_size_out", c_uint32),
        ("context_in", c_void_p),
        ("context_out", c_void_p),
        ("context_size_in", c_uint32),
        ("context_size_out", c_uint32),
        ("result", c_uint32),
        ("repeat", c_int),
        ("nanoseconds", c_uint32),
        ("flags", c_uint32),
        ("cpu", c_uint32),
        ("batch", c_uint32),
    )


_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "libbpf_num_possible_cpus": (c_int, ()),
    "libbpf_set_print": (c_void_p, (_PRINT,)),
    "bpf_object__open_file": (c_void_p, (c_char_p, c_void_p)),
    "bpf_object__load": (c_int, (c_void_p,)),
    "bpf_object__close": (None, (c_void_p,)),
    "bpf_object__find_map_by_name": (c_void_p, (c_void_p, c_char_p)),
    "bpf_object__find_program_by_name": (c_void_p, (c_void_p, c_char_p)),
    "bpf_object__next_map": (c_void_p, (c_void_p, c_void_p)),
    "bpf_map__name": (c_char_p, (c_void_p,)),
    "bpf_map__fd": (c_int, (c_void_p,)),
    "bpf_map__initial_value": (c_void_p, (c_void_p, POINTER(c_size_t))),
    "bpf_program__fd": (c_int, (c_void_p,)),
    "bpf_link_create": (c_int, (c_int, c_int, c_int, POINTER(LinkOptions))),
    "bpf_enable_stats": (c_int, (c_int,)),
    "bpf_map_create": (c_int, (c_int, c_char_p, c_uint32, c_uint32, c_uint32, c_void_p)),
    "bpf_map_update_elem": (c_int, (c_int, c_void_p, c_void_p, c_uint64)),
    "bpf_map_lookup_elem": (c_int, (c_int, c_void_p, c_void_p)),
    "bpf_map_delete_elem": (c_int, (c_int, c_void_p)),
    "bpf_prog_test_run_opts": (c_int, (c_int, POINTER(RunOptions))),
}


class Library:
    """libbpf, whose functions raise OSError where they fail; it writes nothing by itself."""

    def __init__(self) -> None:
        """Raises OSError where the library is not there."""
        self._library = ctypes.CDLL("libbpf.so.1", use_errno=True)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
        self._quiet = _PRINT()  # NULL: what goes wrong is in the errors.
        self._library.libbpf_set_print(self._quiet)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)
        checked = functools.partial(_checked, function)
        setattr(self, name, checked)
        return checked


def _checked(function: Any, *arguments: Any) -> Any:
    """Call it; a negative number is an error, and so is NULL where errno says why."""
    ctypes.set_errno(0)
    result = function(*arguments)
    number = ctypes.get_errno()
    if function.restype is c_int and result < 0:
        number = number or -result
        raise OSError(number, f"{function.__name__}: {os.strerror(number)}")
    if function.restype is c_void_p and result is None and number:
        raise OSError(number, f"{function.__name__}: {os.strerror(number)}")
    return result


@functools.cache
def library() -> Library:
    """Raises Error where libbpf is not installed."""
    try:
        return Library()
    except OSError as error:
        raise Error(
            f"the aggregator in the kernel needs libbpf.so.1, which is not here ({error}); Debian "
            "and Ubuntu have it in the package libbpf1"
        ) from error
