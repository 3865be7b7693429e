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

from sparsewire.tools.lab import Lab

RANK = Path(__file__).with_name("slots_rank.py")
RANKS = 4
ENGINES = [("udp", "exact"), ("udp", "fixed"), ("xdp", "fixed")]


def given_to_ranks(arithmetic: str, elements: int) -> dict[str, Any]:
    """In fixed point a few elements are infinite or NaN."""
    return {
        "arithmetic": arithmetic,
        "elements": elements,
        "densities": [1.0, 0.2],
        "spoilt": 0.0005 if arithmetic == "fixed" else 0,
    }


def run_ranks(lab: Lab, given: dict[str, Any]) -> list[dict[str, Any]]:
    """What each rank prints."""
    aggregation = slots_job.start_aggregators(lab)
    ranks = slots_job.start_ranks(lab, aggregation, RANKS, RANK, json.dumps(given))
    return slots_job.what_they_say(ranks, 200)


def check(transport: str, arithmetic: str, loss: float, elements: int) -> None:
    """With so large a share lost each way, on two links together."""
    if transport == "xdp" and (reason := no_xdp()):
        pytest.skip(reason)
    given = given_to_ranks(arithmetic, elements)
    each = 1 - math.sqrt(1 - loss)
    with Lab(RANKS, loss=each, aggregators=1, transport=transport) as lab:
        told = run_ranks(lab, given)
        lost = lab.lost()
    assert len({rank["digest"] for rank in told}) == 1
    sent = sum(rank["datagrams_sent"] for rank in told)
    again = sum(rank["retransmissions"] for rank in told)
    print(f"{loss:g} over {transport}: {sent} datagrams, {again} of them again; {lost} lost")
    assert sent >= RANKS * elements // 256, "datagrams carried the sums"
    assert lost > sent * loss / 2
    # Not fewer than lost contributions and results. How many more is a matter of timers, so of
    # processors: benchmarks/slots_losses.py measures it, and slots_loss_test bounds it.
    assert again > lost / 2


@lab_test
@pytest.mark.matrix
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("transport", "arithmetic"), ENGINES)
@pytest.mark.parametrize("loss", [0.01, 0.05])
def test_sums_are_exact_over_lossy_links(transport: str, arithmetic: str, loss: float) -> None:
    check(transport, arithmetic, loss, 300_000)


@lab_test
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("transport", "arithmetic"), ENGINES)
def test_sums_by_several_flows_are_exact_over_lossy_links(
    transport: str, arithmetic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARSEWIRE_FLOWS", "4")
    check(transport, arithmetic, 0.02, 300_000)


def check_racks(transport: str, racks: int, **links: Any) -> int:
    """Sums that must be exact, by an aggregator of this kind in each rack; returns packets lost."""
    levels = 2 if racks > 1 else 1
    aggregators = racks + 1 if racks > 1 else 1
    site = {"transport": transport, "racks": racks, "levels": levels, "aggregators": aggregators}
    given = given_to_ranks("fixed", 100_000)
    with Lab(RANKS, **site, **links) as lab:
        told = run_ranks(lab, given)
        lost = lab.lost()
    assert len({rank["digest"] for rank in told}) == 1
    assert sum(rank["datagrams_sent"] for rank in told) >= RANKS * 100_000 // 256
    return lost


@lab_test
@pytest.mark.matrix
@pytest.mark.timeout(240)
@pytest.mark.parametrize("transport", ["udp", "xdp"])
@pytest.mark.parametrize(("ipv6", "loss"), [(False, None), (False, 0.05), (True, 0.01)])
def test_sums_of_racks_are_exact(transport: str, ipv6: bool, loss: float | None) -> None:
    if transport == "xdp" and (reason := no_xdp()):
        pytest.skip(reason)
    lost = check_racks(transport, 2, ipv6=ipv6, loss=loss)
    assert lost > 20 if loss else lost == 0


@lab_test
@pytest.mark.timeout(240)
@pytest.mark.parametrize("transport", [pytest.param("udp", marks=pytest.mark.exhaustive), "xdp"])
def test_sums_of_racks_by_several_flows_are_exact(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if transport == "xdp" and (reason := no_xdp()):
        pytest.skip(reason)
    monkeypatch.setenv("SPARSEWIRE_FLOWS", "4")
    assert check_racks(transport, 2, loss=0.05) > 20


@lab_test
@needs_clang
@pytest.mark.matrix
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
    check_racks("xdp", racks, mtu=9000, loss=loss)


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
