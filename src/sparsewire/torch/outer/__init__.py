"""Outer optimizers: replicas train alone for many steps, and then average how far each has come."""

from sparsewire.torch.outer.membership.by_store import StoreMembership, meeting_at, serve_meeting
from sparsewire.torch.outer.optimizer import OuterOptimizer
from sparsewire.torch.outer.presets import PRESETS, muon, preset

__all__ = [
    "PRESETS",
    "OuterOptimizer",
    "StoreMembership",
    "meeting_at",
    "muon",
    "preset",
    "serve_meeting",
]
