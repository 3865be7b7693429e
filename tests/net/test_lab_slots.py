"""Sums by datagrams between the lab's hosts, whose links lose real packets: exact on all ranks, by
both engines."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import slots_job
from support import no_xdp
from test_lab import lab_test
from xdp_variant import WITHOUT_FRAGMENTS, needs_clang, variant

from sparsewire.lab import Lab

RANK = Path(__file__).with_name("slots_rank.py")
RANKS = 4
ENGINES = [("udp", "exact"), ("udp", "fixed"), ("xdp", "fixed")]


def run_ranks(lab: Lab, given: dict[str, Any]) -> list[dict[str, Any]]:
    """What each rank prints."""
    aggregation = slots_job.start_aggregators(lab)
    ranks = slots_job.start_ranks(lab, aggregation, RANKS, RANK, json.dumps(given))
    return slots_job.what_they_say(ranks, 200)


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
    assert lost >= sent * loss / 2
    # How many datagrams are sent twice is a matter of timers, so of processors:
    # benchmarks/slots_losses.py measures it, and slots_loss_test bounds it.
    assert not loss or again > 0


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
