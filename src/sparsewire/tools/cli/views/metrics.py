"""Figures in Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Metric(NamedTuple):
    """A figure of a whole, or of each of its parts, which labels tell apart."""

    name: str
    help: str
    is_counter: bool = True
    is_bytes: bool = False
    """Then tables for people have units; Prometheus has bytes."""


def samples(prefix: str, metric: Metric, values: Mapping[str, float]) -> Iterator[str]:
    """The lines of a metric with a value for each label, such as '{job="1"}'; "" is none."""
    if not values:
        return
    name = f"{prefix}_{metric.name}{'_total' if metric.is_counter else ''}"
    yield f"# HELP {name} {metric.help}"
    yield f"# TYPE {name} {'counter' if metric.is_counter else 'gauge'}"
    for labels, value in values.items():
        yield f"{name}{labels} {value}"
