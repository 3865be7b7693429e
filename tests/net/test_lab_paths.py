"""Paths of datagrams that change in the middle of a job, with real packets: what passes no more is
named on every rank within the peer timeout, although the connections live."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import slots_job
from support import no_xdp
from test_lab import lab_test

from sparsewire.tools.lab import Lab

RANK = Path(__file__).with_name("path_rank.py")
RANKS = 4
VICTIM = 1
PEER_TIMEOUT_S = 3.0
# Beyond the peer timeout: what a busy machine takes to see it, and to tell all others.
SLACK_S = 2.5
# What a rack's aggregator in the kernel takes to see that its root answers no more.
RACK_SEES_S = 4.0
ELEMENTS = 300_000
NO_DEADLINE_S = 90.0
RULES = """
add table netdev paths
add chain netdev paths out {{ type filter hook egress device {interface} priority 0; }}
add chain netdev paths in {{ type filter hook ingress device {interface} priority 0; }}
"""
REFUSALS = """
add table inet refusals
add chain inet refusals out { type filter hook output priority 0; }
add rule inet refusals out meta l4proto udp drop
"""


def run(lab: Lab, place: int, *argv: str, **more: Any) -> None:
    """A command of the system on a host."""
    how = {"check": True, "text": True, "timeout": 20, **more}
    lab.namespace(place).call(subprocess.run, argv, **how)


def block(lab: Lab, place: int, *directions: str, which: str = "meta l4proto udp") -> None:
    """Drop all such datagrams of a host, "out" or "in", from now on; nobody is told."""
    rules = RULES.format(interface=lab.interface)
    for direction in directions:
        rules += f"add rule netdev paths {direction} {which} drop\n"
    run(lab, place, "nft", "-f", "-", input=rules)


def change_in_the_middle(
    lab: Lab, change: Callable[[], None]
) -> tuple[float, list[dict[str, Any]]]:
    """When it was changed, and what each rank says at its end."""
    aggregation = slots_job.start_aggregators(lab)
    patience = {"SPARSEWIRE_PEER_TIMEOUT": str(PEER_TIMEOUT_S)}
    argv = slots_job.python(RANK, ELEMENTS, NO_DEADLINE_S)
    ranks = []
    for rank in range(RANKS):
        told = {**aggregation.environment(rank), **lab.environment(rank, world_size=RANKS)}
        ranks.append(slots_job.start(lab, rank, argv, {**told, **patience}))
    slots_job.await_ready(ranks)
    time.sleep(0.3)
    change()
    changed = time.monotonic()
    return changed, slots_job.what_they_say(ranks, 100)


def check_all_fail(changed: float, told: list[dict[str, Any]], *words: str) -> None:
    for rank in told:
        print(f"{rank['at'] - changed:.2f} s: {rank['text']}")
    for rank in told:
        assert rank["type"] == "Timeout", rank["text"]
        assert rank["at"] - changed <= PEER_TIMEOUT_S + SLACK_S
        for word in ("no longer pass", "connection lives", *words):
            assert word in rank["text"]


def lab_of(transport: str, **more: Any) -> Lab:
    if transport == "xdp" and (reason := no_xdp()):
        pytest.skip(reason)
    return Lab(RANKS, transport=transport, **{"aggregators": 1, **more})


@lab_test
@pytest.mark.matrix
@pytest.mark.timeout(150)
@pytest.mark.parametrize("directions", [("out",), ("in",), ("out", "in")], ids="-".join)
@pytest.mark.parametrize("transport", ["udp", "xdp"])
def test_datagrams_of_one_rank_that_pass_no_more_end_the_job(
    transport: str, directions: tuple[str, ...]
) -> None:
    with lab_of(transport) as lab:
        told = change_in_the_middle(lab, lambda: block(lab, VICTIM, *directions))
    check_all_fail(*told, f"rank {VICTIM}", "firewall")


@lab_test
@pytest.mark.timeout(150)
@pytest.mark.parametrize("transport", ["udp", "xdp"])
def test_datagrams_of_all_ranks_that_pass_no_more_end_the_job(transport: str) -> None:
    def block_all() -> None:
        for place in range(RANKS):
            block(lab, place, "out", "in")

    with lab_of(transport) as lab:
        told = change_in_the_middle(lab, block_all)
    check_all_fail(*told, "firewall")


def flows_of(lab: Lab, place: int) -> list[int]:
    """The ports from which a host sends datagrams to its aggregator."""
    lines = lab.namespace(place).call(Path("/proc/thread-self/net/udp").read_text).splitlines()[1:]
    ends = (line.split()[1:3] for line in lines)
    return [int(own.split(":")[1], 16) for own, far in ends if int(far.split(":")[1], 16)]


@lab_test
@pytest.mark.matrix
@pytest.mark.timeout(150)
@pytest.mark.parametrize("direction", ["out", "in"])
@pytest.mark.parametrize("transport", ["udp", "xdp"])
def test_one_flow_of_one_rank_that_passes_no_more_is_named_by_its_port(
    transport: str, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports: list[int] = []

    def block_one() -> None:
        ports[:] = flows_of(lab, VICTIM)
        end = "sport" if direction == "out" else "dport"
        block(lab, VICTIM, direction, which=f"udp {end} {ports[1]}")

    monkeypatch.setenv("SPARSEWIRE_FLOWS", "4")
    with lab_of(transport) as lab:
        changed, told = change_in_the_middle(lab, block_one)
    assert len(ports) == 4
    check_all_fail(
        changed, told, f"rank {VICTIM}", f"of 4, from UDP port {ports[1]}", "other flows"
    )


@lab_test
@pytest.mark.timeout(150)
@pytest.mark.parametrize("place", [VICTIM, RANKS, RANKS + 1], ids=["rank", "root", "rack"])
def test_datagrams_of_a_rack_that_pass_no_more_end_the_job(place: int) -> None:
    """Also where it is on the way from the rack's aggregator to the root that they get lost."""
    with lab_of("udp", racks=2, levels=2, aggregators=3) as lab:
        told = change_in_the_middle(lab, lambda: block(lab, place, "out", "in"))
    check_all_fail(*told, "firewall", "or from there to its parent")


@lab_test
@pytest.mark.timeout(150)
def test_datagrams_of_the_root_that_pass_no_more_end_the_job_of_racks_in_the_kernel() -> None:
    """A rack's aggregator takes a few seconds to see it, before its workers can."""
    with lab_of("xdp", racks=2, levels=2, aggregators=3) as lab:
        changed, told = change_in_the_middle(lab, lambda: block(lab, RANKS, "out", "in"))
    check_all_fail(changed + RACK_SEES_S, told, "firewall", "or from there to its parent")


@lab_test
@pytest.mark.timeout(150)
def test_datagrams_that_this_host_refuses_are_named() -> None:
    with lab_of("udp") as lab:
        told = change_in_the_middle(lab, lambda: run(lab, VICTIM, "nft", "-f", "-", input=REFUSALS))
    check_all_fail(*told, "Operation not permitted")
    assert told[1][VICTIM]["stats"]["datagram_errors"] > 0


@lab_test
@pytest.mark.timeout(150)
def test_an_mtu_that_shrinks_is_named() -> None:
    def shrink() -> None:
        run(lab, VICTIM, "ip", "link", "set", lab.interface, "mtu", "1000")

    with lab_of("udp") as lab:
        told = change_in_the_middle(lab, shrink)
    check_all_fail(*told, "MTU", "1472", "972")


@lab_test
@pytest.mark.timeout(150)
@pytest.mark.parametrize("direction", ["out", "in"])
def test_a_path_that_becomes_narrow_without_a_word_is_named(direction: str) -> None:
    def narrow() -> None:
        block(lab, VICTIM, direction, which="udp length > 1000")

    with lab_of("udp") as lab:
        told = change_in_the_middle(lab, narrow)
    check_all_fail(*told, "MTU", "short ones pass")
