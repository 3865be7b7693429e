"""Sums by datagrams between the lab's hosts, whose links lose real packets: exact on all ranks, by
both engines, with few retransmissions."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import no_xdp
from test_lab import lab_test
from xdp_variant import WITHOUT_FRAGMENTS, needs_clang, variant

from sparsewire.lab import Lab
from sparsewire.lab.aggregators import Aggregation

TESTS = Path(__file__).parents[1]
RANK = str(Path(__file__).with_name("slots_rank.py"))
RANKS = 4
ENGINES = [("udp", "exact"), ("udp", "fixed"), ("xdp", "fixed")]


def run_ranks(lab: Lab, given: dict[str, Any]) -> list[dict[str, Any]]:
    """What each rank prints."""
    aggregation = Aggregation.of(lab)
    shared = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{TESTS}"}
    for place, argv in aggregation.commands():
        lab.popen(place, argv, {**shared, **aggregation.settings()})
    ranks = [
        lab.popen(
            rank,
            [sys.executable, RANK, json.dumps(given)],
            {**shared, **lab.environment(rank), **aggregation.environment(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    said = [rank.communicate(timeout=200) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * RANKS, said
    return [json.loads(printed) for printed, _ in said]


def check(transport: str, arithmetic: str, loss: float, elements: int, racks: int = 1) -> None:
    """With so large a share lost each way, on two links together."""
    if transport == "xdp" and (reason := no_xdp()):
        pytest.skip(reason)
    given = {"arithmetic": arithmetic, "elements": elements, "densities": [1.0, 0.2]}
    each = 1 - math.sqrt(1 - loss)
    levels = {"racks": racks, "levels": 2} if racks > 1 else {}
    aggregators = racks + 1 if racks > 1 else 1
    with Lab(RANKS, loss=each, aggregators=aggregators, transport=transport, **levels) as lab:
        told = run_ranks(lab, given)
        lost = lab.lost()
    assert len({rank["digest"] for rank in told}) == 1
    sent = sum(rank["datagrams_sent"] for rank in told)
    again = sum(rank["retransmissions"] for rank in told)
    print(f"{loss:g} over {transport}: {sent} datagrams, {again} of them again; {lost} lost")
    assert sent >= RANKS * elements // 256, "datagrams carried the sums"
    assert again <= 2 * lost + sent / 100
    assert lost >= sent * loss / 2


@lab_test
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("transport", "arithmetic"), ENGINES)
@pytest.mark.parametrize("loss", [0.01, 0.05])
def test_sums_are_exact_over_lossy_links(transport: str, arithmetic: str, loss: float) -> None:
    check(transport, arithmetic, loss, 300_000)


@lab_test
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("transport", "arithmetic"), ENGINES[1:])
@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05])
def test_sums_of_racks_are_exact_over_lossy_links(
    transport: str, arithmetic: str, loss: float
) -> None:
    check(transport, arithmetic, loss, 300_000, racks=2)


@lab_test
@needs_clang
@pytest.mark.timeout(240)
@pytest.mark.parametrize("loss", [None, 0.05])
@pytest.mark.parametrize("racks", [1, 2])
@pytest.mark.parametrize("hook", ["xdp", "tc"])
def test_sums_are_exact_over_jumbo_frames(
    hook: str, racks: int, loss: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offloads are on where nothing is lost on purpose."""
    if reason := no_xdp():
        pytest.skip(reason)
    if hook == "tc":
        monkeypatch.setenv("SPARSEWIRE_BPF", str(variant(tmp_path, *WITHOUT_FRAGMENTS)))
    aggregators = racks + 1 if racks > 1 else 1
    levels = min(racks, 2)
    site = {"aggregators": aggregators, "racks": racks, "levels": levels, "transport": "xdp"}
    with Lab(RANKS, mtu=9000, loss=loss, **site) as lab:
        given = {"arithmetic": "fixed", "elements": 300_000, "densities": [1.0, 0.2]}
        told = run_ranks(lab, given)
    assert len({rank["digest"] for rank in told}) == 1
    assert sum(rank["datagrams_sent"] for rank in told) >= RANKS * 300_000 // 256


@lab_test
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("transport", "arithmetic"), ENGINES)
@pytest.mark.parametrize(
    ("loss", "elements"), [(0.001, 5_000_000), (0.01, 5_000_000), (0.2, 300_000)]
)
def test_any_loss_and_larger_sums(
    transport: str, arithmetic: str, loss: float, elements: int
) -> None:
    check(transport, arithmetic, loss, elements)
