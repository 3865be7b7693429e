"""Real packets through the programs: sums are exact whatever is lost, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from pyroute2 import IPRoute
from slot_wire import HELLO, Slotted, decoded
from slot_worker import BLOCK, SlotWorker
from xdp_kernel import NEAR, connect, needs_kernel
from xdp_rack import TX_CHECKSUM, Rack, rack, run, turn
from xdp_variant import WITHOUT_FRAGMENTS, needs_clang, variant

from sparsewire.tools.lab.namespace import Namespace, interface_name
from sparsewire.xdp.libbpf import library

pytestmark = [*needs_kernel, pytest.mark.timeout(120)]

JOB, KEY = 99, bytes(range(32))
RUN_TIME = 0  # BPF_STATS_RUN_TIME
FIRST = Slotted(JOB, 0, 0, 0, key=KEY)


def vectors(workers: int, seed: int, share: float) -> np.ndarray:
    """Whole int32 vectors of which so large a share of the blocks is not zero."""
    draw = np.random.default_rng(seed)
    values = draw.integers(-(1 << 31), 1 << 31, (workers, 100, BLOCK), dtype=np.int32)
    values[draw.random((workers, 100)) >= share] = 0
    return values.reshape(workers, -1)


def add_up(rack: Rack, values: np.ndarray, loss: float) -> None:
    rack.add_job(JOB, KEY)
    workers = [
        SlotWorker(number, vector, rack.flows[number], FIRST, loss)
        for number, vector in enumerate(values)
    ]
    run(workers, rack.flows, 60)
    expected = values.sum(axis=0, dtype=np.int32)
    for worker in workers:
        np.testing.assert_array_equal(worker.out.ravel(), expected)


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.2])
@pytest.mark.parametrize("share", [0.05, 1.0])
def test_sums_are_exact(loss: float, share: float) -> None:
    values = vectors(4, round(100 * loss), share)
    with rack(4) as hosts:
        add_up(hosts, values, loss)
        counts = hosts.plane.stats(JOB)
        assert counts["rejected"] == 0
        assert counts["contributions"] == 4 * counts["results"]
        if loss == 0.2:
            assert min(counts[what] for what in ("duplicates", "resent", "recalls")) > 0


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_any_number_of_workers(workers: int) -> None:
    with rack(workers) as hosts:
        add_up(hosts, vectors(workers, workers, 0.5), 0.05)


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_ipv6(loss: float) -> None:
    with rack(3, is_v6=True) as hosts:
        add_up(hosts, vectors(3, 1, 0.5), loss)


@pytest.mark.parametrize("flows", [2, 4])
@pytest.mark.parametrize("is_v6", [False, True])
def test_results_go_to_the_flows_of_their_slots(flows: int, is_v6: bool) -> None:
    with rack(3, is_v6=is_v6, flows=flows) as hosts:
        add_up(hosts, vectors(3, 1, 0.5), 0.05)
        assert hosts.plane.stats(JOB)["rejected"] == 0


def test_a_program_opens_the_far_end_as_well() -> None:
    with rack(2, opener="pass") as hosts:
        add_up(hosts, vectors(2, 0, 0.5), 0.0)


JUMBO = 9000


@pytest.fixture
def in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a driver that has no room for jumbo frames."""
    monkeypatch.setenv("SPARSEWIRE_BPF", str(variant(tmp_path, *WITHOUT_FRAGMENTS)))


def test_jumbo_frames_may_pass_by_in_fragments() -> None:
    with rack(3, mtu=JUMBO) as hosts:
        assert hosts.plane.hook == "xdp"
        add_up(hosts, vectors(3, 0, 0.5), 0.05)


@needs_clang
@pytest.mark.usefixtures("in_pages")
@pytest.mark.parametrize("is_v6", [False, True])
@pytest.mark.parametrize(("loss", "flows"), [(0.0, 1), (0.01, 4), (0.2, 1)])
def test_behind_drivers_that_have_no_room(loss: float, flows: int, is_v6: bool) -> None:
    values = vectors(4, round(100 * loss), 0.5)
    with rack(4, mtu=JUMBO, is_v6=is_v6, flows=flows) as hosts:
        assert hosts.plane.hook == "tc"
        add_up(hosts, values, loss)
        counts = hosts.plane.stats(JOB)
        assert counts["rejected"] == 0
        assert counts["contributions"] == 4 * counts["results"]


@needs_clang
@pytest.mark.usefixtures("in_pages")
def test_where_frames_have_room_the_driver_adds_up() -> None:
    with rack(2) as hosts:
        assert hosts.plane.hook == "xdp"
        add_up(hosts, vectors(2, 0, 0.5), 0.0)


VALUES = tuple(range(256))


def one_round(rack: Rack, last_sends_values: bool) -> None:
    """Every worker contributes, and gets the result without asking again."""
    rack.add_job(JOB, KEY)
    last = len(rack.workers) - 1
    for number, each in enumerate(rack.workers):
        has_values = number == (last if last_sends_values else 0)
        sent = FIRST.but(worker=number, block=256, values=VALUES if has_values else ())
        each.send(sent.encoded())
        time.sleep(0.05)
    for each in rack.workers:
        each.settimeout(5)
        result = decoded(each.recv(2048), KEY)
        assert (result.worker, result.values) == (last, VALUES)


@pytest.mark.parametrize("is_v6", [False, True])
def test_every_worker_gets_a_copy(is_v6: bool) -> None:
    with rack(3, is_v6=is_v6) as hosts:
        one_round(hosts, last_sends_values=True)


@pytest.mark.parametrize("checksums_by", ["receiver", "sender", "switch"])
@pytest.mark.parametrize("is_v6", [False, True])
def test_a_small_acknowledgement_brings_a_large_result(is_v6: bool, checksums_by: str) -> None:
    """Its frame has no room for the values, so the result takes the way through tc."""
    with rack(3, is_v6=is_v6) as hosts:
        for number, host in enumerate(hosts.far):
            if checksums_by == "sender":
                host.call(turn, interface_name(0), TX_CHECKSUM, on=False)
            elif checksums_by == "switch":
                hosts.switch.call(turn, f"port0-{number}", TX_CHECKSUM, on=False)
        counting = library().bpf_enable_stats(RUN_TIME)
        one_round(hosts, last_sends_values=False)
        os.close(counting)
        assert runs(hosts.plane.programs.program("grow")) >= 1


def runs(program: int) -> int:
    """How often a program ran while the kernel counted."""
    with open(f"/proc/self/fdinfo/{program}") as told:
        return int(dict(line.split(":\t") for line in told)["run_cnt"])


def test_greetings_reach_the_process() -> None:
    with rack(2) as hosts:
        hosts.aggregator.settimeout(5)
        greeting = FIRST.but(kind=HELLO).encoded()
        hosts.workers[0].send(greeting)
        data, sender = hosts.aggregator.recvfrom(2048)
        assert (data, sender) == (greeting, hosts.workers[0].getsockname())


OPENS = f"""
import time
from sparsewire.xdp import XdpPlane
plane = XdpPlane({NEAR!r}, 9999)
print("attached", flush=True)
time.sleep(60)
"""


def is_attached() -> bool:
    with IPRoute() as route:
        link = route.get_links(route.link_lookup(ifname=NEAR)[0])[0]
        return bool(link.get_attr("IFLA_XDP").get_attr("IFLA_XDP_ATTACHED"))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_programs_go_with_their_process(how: signal.Signals) -> None:
    with closing(Namespace("xdp-killed")) as namespace:
        namespace.call(connect)
        command = [sys.executable, "-c", OPENS]
        with namespace.call(subprocess.Popen, command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout.readline() == b"attached\n"
                assert namespace.call(is_attached)
            finally:
                process.send_signal(how)
        deadline = time.monotonic() + 10
        while namespace.call(is_attached):
            assert time.monotonic() < deadline
            time.sleep(0.05)
