"""One training to be run: what every rank is told, as JSON."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    """`method` says how gradients are averaged, in words that `Averaging.parse` takes."""

    task: str
    method: str
    steps: int
    seed: int
    schedule_steps: int | None = None
    """The length of the whole training, of which `steps` are run; None: rates do not change."""
    warmup: int = 0
    """The first steps, in which compressing hooks send everything."""
    evaluations: int = 10
    """How often the held-out loss is taken, beside the end."""
    alone_steps: int = 0
    """Steps without communication behind the others, to tell what that takes."""
    width: int = 128
    """Of the language model,"""
    tokens: str = ""
    """whose text is in this file."""
    interface: str | None = None
    """The network interface that only this rank uses, if any."""
