"""The noise of `core/kernels/loops/noise.hpp` in integer operations of torch: the same random bits.

Integers are signed here and wrap around, so shifts to the right need a mask.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SPAN = 1 << 16
_LOW_64 = (1 << 64) - 1
_OFFSET = 0x9E3779B97F4A7C15


def noise(key: int, count: int, device: torch.device) -> Tensor:
    """32 random bits for each of `count` elements, int32: a function of the key and the place."""
    spans = torch.arange(-(-count // _SPAN), device=device)
    states = _mix_64(spans + _signed(_mixed(key + _OFFSET), 64))[:, None]
    first, second = states.to(torch.int32), (states >> 32).to(torch.int32)
    places = torch.arange(min(count, _SPAN), dtype=torch.int32, device=device)
    bits = _mix_32(_mix_32(places + first) ^ second)
    return bits.flatten()[:count]


def top_bits(random: Tensor, bits: int) -> Tensor:
    """The highest `bits` (1 to 31) bits of each element, as a number of at least zero, int32."""
    return _shifted(random, 32 - bits, 32)


def _mixed(number: int) -> int:
    """`_mix_64` of one number, modulo 2^64."""
    low = number & _LOW_64
    low = (low ^ low >> 30) * 0xBF58476D1CE4E5B9 & _LOW_64
    low = (low ^ low >> 27) * 0x94D049BB133111EB & _LOW_64
    return low ^ low >> 31


def _mix_64(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30, 64)) * _signed(0xBF58476D1CE4E5B9, 64)
    x = (x ^ _shifted(x, 27, 64)) * _signed(0x94D049BB133111EB, 64)
    return x ^ _shifted(x, 31, 64)


def _mix_32(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 16, 32)) * _signed(0x85EBCA6B, 32)
    x = (x ^ _shifted(x, 13, 32)) * _signed(0xC2B2AE35, 32)
    return x ^ _shifted(x, 16, 32)


def _shifted(x: Tensor, by: int, width: int) -> Tensor:
    return (x >> by) & ((1 << (width - by)) - 1)


def _signed(number: int, width: int) -> int:
    """The signed number with the same low `width` bits."""
    half = 1 << (width - 1)
    return ((number + half) & ((1 << width) - 1)) - half
