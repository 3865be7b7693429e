"""Two processors on one slot at once: each contribution is taken once, and sums are exact."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from processor_player import SLOTS
from xdp_kernel import Kernel, kernel, needs_kernel
from xdp_play import JOB, KEY
from xdp_variant import compiled, needs_clang

WORKERS, ROUNDS = 8, 2000
# Unlocked, a few hundred rounds in a row may come out right.
ROUNDS_UNLOCKED = 12_000
PLAYER = Path(__file__).with_name("processor_player.py")
PROCESSORS = sorted(os.sched_getaffinity(0))

pytestmark = [
    *needs_kernel,
    pytest.mark.timeout(240),
    pytest.mark.skipif(len(PROCESSORS) < 2, reason="there is one processor"),
]


def start(program: int, processor: int, first: int, rounds: int) -> subprocess.Popen[str]:
    last = first + WORKERS // 2 - 1
    numbers = (program, processor, first, last, WORKERS, rounds)
    return subprocess.Popen(
        [sys.executable, str(PLAYER), *map(str, numbers)],
        pass_fds=[program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def play_on_both(programs: Kernel, rounds: int, seconds: float) -> Counter[str]:
    """Half of the workers on each; how often each kind of answer came. Raises where one fails."""
    programs.add_job(JOB, WORKERS, KEY)
    program = programs.plane.programs.program("contribute")
    players = [
        start(program, processor, first, rounds)
        for processor, first in zip(PROCESSORS[:2], (0, WORKERS // 2), strict=True)
    ]
    try:
        for player in players:
            assert player.stdout.readline() == "ready\n"
        for player in players:
            player.stdin.write("begin\n")
            player.stdin.flush()
        told = [player.communicate(timeout=seconds)[0] for player in players]
        assert [player.returncode for player in players] == [0, 0]
        return sum((Counter(json.loads(each)) for each in told), Counter[str]())
    finally:
        for player in players:
            player.kill()
            player.wait()


def test_sums_by_two_processors_are_exact() -> None:
    with kernel() as programs:
        seen = play_on_both(programs, ROUNDS, 150)
        counts = programs.plane.stats(JOB)
    assert counts["contributions"] == WORKERS * SLOTS * ROUNDS
    assert counts["results"] == SLOTS * ROUNDS
    assert counts["resent"] == seen["results"] - SLOTS * ROUNDS
    assert counts["recalls"] == seen["recalls"] > 0
    assert counts["duplicates"] == counts["resent"] + counts["recalls"]
    assert (counts["stale"], counts["rejected"]) == (0, 0)


@needs_clang
@pytest.mark.exhaustive
def test_slots_without_a_lock_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "bpf"
    sources.mkdir()
    for source in (Path(__file__).parents[2] / "bpf").glob("*.[ch]"):
        text = source.read_text()
        for call in ("bpf_spin_lock(&slot->lock);", "bpf_spin_unlock(&slot->lock);"):
            text = text.replace(call, "")
        (sources / source.name).write_text(text)
    monkeypatch.setenv("SPARSEWIRE_BPF", str(compiled(sources)))
    with (
        kernel() as programs,
        pytest.raises((AssertionError, subprocess.TimeoutExpired)),
    ):
        play_on_both(programs, ROUNDS_UNLOCKED, 60)
