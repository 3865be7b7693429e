"""Programs with a fault put in: the play finds it, so it would find one of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdp_kernel import Kernel, kernel, needs_kernel
from xdp_play import play
from xdp_variant import needs_clang, variant

FAULTS = {
    "duplicates are taken": ("slot.h", "if (!(own->missing & bit)) return RECALLED;", ""),
    "late ones are not recalled": ("reply.h", "lowest_bit(verdict.missing)", "in->worker"),
    "a round may be left": ("slot.h", "&& has_ended(other) ? BEGINS", "? BEGINS"),
}
FAULTS_OF_RACKS = {
    "sums are not sent up again": ("slot.h", "if (own->phase == ABOVE) return URGED;", ""),
    "the root recalls in vain": ("parent.h", "if (next->phase == ABOVE) return URGED;", ""),
    "results are taken twice": ("parent.h", "own->phase = COMPLETE;", ""),
    "the last is who it was not": ("parent.h", "in->worker == rack && own->urged", "own->urged"),
    "a rack's sums are its result": (
        "slot.h",
        ": has_parent ? ABOVE : COMPLETE;",
        ": COMPLETE;",
    ),
}

pytestmark = [*needs_kernel, needs_clang]


@pytest.mark.parametrize("fault", [*FAULTS, *FAULTS_OF_RACKS])
def test_faults_are_found(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = variant(tmp_path, *(FAULTS | FAULTS_OF_RACKS)[fault])
    monkeypatch.setenv("SPARSEWIRE_BPF", str(changed))
    with kernel() as programs, pytest.raises(AssertionError):
        play_often(programs, in_rack=fault in FAULTS_OF_RACKS)


def play_often(programs: Kernel, *, in_rack: bool) -> None:
    for seed in range(20):
        play(programs, seed, workers=3, in_rack=in_rack)
