"""Emulated hosts and links on one Linux machine: collectives tried and measured, no cluster."""

from sparsewire.errors import LabError
from sparsewire.tools.lab.lab import MTU, Lab, available
from sparsewire.tools.lab.quantities import UNLIMITED, limit_of, parse_link, parse_loss, parse_speed

__all__ = [
    "MTU",
    "UNLIMITED",
    "Lab",
    "LabError",
    "available",
    "limit_of",
    "parse_link",
    "parse_loss",
    "parse_speed",
]
