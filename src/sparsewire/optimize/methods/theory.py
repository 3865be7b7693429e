"""What a method's theory says: its parameters, and how fast it then converges."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Theory:
    """Parameters for which a theorem holds; each method's `theory` names the theorem."""

    gamma: float
    """The step size."""
    rate: float | None = None
    """r, where the theorem's Lyapunov function shrinks by 1 - r per step in expectation."""
    alpha: float = 1.0
    """How far shifts move towards what they track, in (0, 1]."""
    probability: float = 1.0
    """That of a step's shared coin."""
