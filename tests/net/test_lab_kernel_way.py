"""Ranks try the way of results before anything relies on it: what an aggregator's kernel sends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import slots_job
from support import no_xdp, serving
from test_lab import lab_test

from sparsewire.tools.lab import Lab, network
from sparsewire.tools.lab.aggregators import Aggregation

RANKS = 2
RANK = Path(__file__).with_name("kernel_way_rank.py")
# What init may take: 2.5 s of greetings, and processes that start while others use the machine.
MOST_S = 12.0

pytestmark = [pytest.mark.timeout(120)]


@pytest.fixture
def deaf_lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """One whose switch does not take what XDP programs send: a veth without GRO and program."""
    if reason := no_xdp():
        pytest.skip(reason)
    for module, what in ((network.xdp, "accept"), (network.cable, "merge_datagrams")):
        monkeypatch.setattr(module, what, lambda interface: None)
    with Lab(RANKS, aggregators=1, transport="xdp") as lab:
        yield lab


def outcomes(lab: Lab, transport: str = "xdp") -> list[dict[str, object]]:
    """What each rank tells, with an aggregator that was started with this transport."""
    aggregation = Aggregation.of(lab)
    for place, argv in aggregation.commands():
        command = [transport if word == "xdp" else word for word in argv]
        slots_job.start(lab, place, command, aggregation.settings(), stdout=subprocess.DEVNULL)
    ranks = slots_job.start_ranks(lab, aggregation, RANKS, RANK)
    return slots_job.what_they_say(ranks, 60)


@lab_test
def test_a_veth_that_takes_no_redirected_packets_is_named_by_init(deaf_lab: Lab) -> None:
    for told in outcomes(deaf_lab):
        assert told["error"] == "Timeout"
        assert "ethtool -K DEV gro on" in str(told["text"])
        assert told["seconds"] < MOST_S


@lab_test
def test_results_for_one_worker_travel_together() -> None:
    if reason := no_xdp():
        pytest.skip(reason)
    with Lab(RANKS, aggregators=1, transport="xdp") as lab:
        for told in outcomes(lab):
            assert told["sums"] == [3.0]
            assert told["packets"] < told["datagrams_received"] / 2


@lab_test
def test_auto_adds_up_in_the_process_where_the_kernel_is_not_heard(deaf_lab: Lab) -> None:
    told = outcomes(deaf_lab, "auto")
    assert [each.get("sums") for each in told] == [[3.0]] * RANKS


@lab_test
def test_auto_adds_up_in_the_kernel_where_that_works() -> None:
    if reason := no_xdp():
        pytest.skip(reason)
    with Lab(RANKS, aggregators=1, transport="xdp") as lab:
        assert [each.get("sums") for each in outcomes(lab, "auto")] == [[3.0]] * RANKS


def test_auto_takes_udp_where_no_program_can_be_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SPARSEWIRE_BPF", str(tmp_path / "missing.o"))
    with serving(transport="auto", interface="lo") as server:
        status = server.status()
    assert (status.transport, status.interface) == ("udp", "")
    assert "by udp" in caplog.text
