"""Racks of the lab: who stands where, what the trunk carries, and which aggregator serves whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from support import no_xdp
from test_lab import invoke, lab_test, seconds_to_send

from sparsewire.errors import ExperimentError
from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.lab import Lab
from sparsewire.tools.lab.aggregators import Aggregation

CALL_AGGREGATOR = """
import os, socket, time
host, _, port = os.environ["SPARSEWIRE_AGGREGATORS"].rpartition(":")
deadline = time.monotonic() + 20
while socket.socket().connect_ex((host, int(port))):
    assert time.monotonic() < deadline, "nobody listens"
    time.sleep(0.1)
"""

SUM = """
import numpy as np, sparsewire
with sparsewire.init(timeout=60) as comm:
    x = np.full(100_000, comm.rank + 1.0, np.float32)
    comm.all_reduce(x)
    print(f"in all {x[-1]}")
"""

LOSE_ONE = """
import os, signal
import numpy as np, sparsewire
with sparsewire.init(timeout=20) as comm:
    x = np.ones(300_000, np.float32)
    if comm.rank == 1:
        comm.all_reduce(x)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            comm.all_reduce(x)
    except sparsewire.PeerLost as lost:
        print(f"lost {lost.rank}")
"""


def test_hosts_stand_in_racks_in_order() -> None:
    lab = Lab(5, ranks=2, racks=2, aggregators=1)
    assert [lab.rack_of(rank) for rank in range(10)] == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert lab.rack_of(10) == 0
    assert {Lab(3, racks=1).rack_of(rank) for rank in range(3)} == {0}
    with pytest.raises(ValueError, match="racks is 3"):
        Lab(2, racks=3)


def test_with_two_levels_each_rack_has_an_aggregator_below_the_first() -> None:
    lab = Lab(4, racks=2, aggregators=3, levels=2, transport="udp")
    assert [lab.rack_of(place) for place in (4, 5, 6)] == [0, 0, 1]
    aggregation = Aggregation.of(lab)
    root, *leaves = (argv for _, argv in aggregation.commands())
    listening = [argv[argv.index("--bind") + 1] for argv in (root, *leaves)]
    assert "--parent" not in root
    assert [argv[argv.index("--parent") + 1] for argv in leaves] == [listening[0]] * 2
    in_kernel = Aggregation.of(Lab(4, racks=2, aggregators=3, levels=2, transport="xdp"))
    engines = [argv[argv.index("--transport") + 1] for _, argv in in_kernel.commands()]
    assert engines == ["udp", "xdp", "xdp"]
    found = [aggregation.environment(rank)["SPARSEWIRE_AGGREGATORS"] for rank in range(4)]
    assert found == [listening[1]] * 2 + [listening[2]] * 2
    racks = [aggregation.environment(rank)["SPARSEWIRE_RACK"] for rank in range(4)]
    assert racks == ["rack0", "rack0", "rack1", "rack1"]


@pytest.mark.parametrize("aggregators", [0, 2])
def test_two_levels_need_a_root_and_one_for_each_rack(aggregators: int) -> None:
    with pytest.raises(ValueError, match="one more aggregator than racks"):
        Lab(4, racks=2, aggregators=aggregators, levels=2)


def test_a_cluster_tells_of_its_racks_and_knows_no_limit() -> None:
    cluster = Cluster(4, 1, True, "500mbit", racks=2, trunk="250mbit")
    assert str(cluster).endswith("1 dedicated aggregator, 2 racks with a trunk of 250mbit")
    assert cluster.seconds(1e6) is None
    with_own = Cluster(4, 3, True, racks=2, trunk="1gbit", levels=2, transport="udp")
    assert str(with_own).endswith(
        "2 racks with an aggregator each below the first and with a trunk of 1gbit"
    )
    with pytest.raises(ExperimentError, match="--transport udp or xdp"):
        Cluster(4, 3, True, racks=2, levels=2)
    with pytest.raises(ExperimentError, match="--hosts"):
        Cluster(4, 3, levels=2, transport="udp")


@lab_test
def test_racks_reach_each_other_as_fast_as_the_trunk_is() -> None:
    with Lab(2, racks=2, trunk="50mbit") as lab:
        across = seconds_to_send(lab, 5_000_000)
    assert 0.75 < across < 10, "5 MB take 0.8 s at 50 Mbit/s"


@lab_test
def test_the_trunk_is_between_racks_only() -> None:
    """What hosts of one rack send to each other would take 40 s over the trunk."""
    with Lab(4, racks=2, trunk="1mbit") as lab:
        assert seconds_to_send(lab, 5_000_000) < 20


@lab_test
def test_ranks_of_all_racks_reach_the_aggregator() -> None:
    options = ("--racks", "3", "--trunk", "100mbit", "--aggregators", "1")
    result = invoke("--hosts", "3", *options, "--", sys.executable, "-c", CALL_AGGREGATOR)
    assert result.exit_code == 0, result.output


@lab_test
@pytest.mark.parametrize("transport", ["udp", "xdp"])
def test_racks_with_an_aggregator_each_sum_at_a_trunk(transport: str) -> None:
    if transport == "xdp" and (reason := no_xdp()):
        pytest.skip(reason)
    options = ("--racks", "2", "--trunk", "250mbit", "--transport", transport, "--hierarchy")
    result = invoke("--hosts", "4", *options, "--", sys.executable, "-c", SUM)
    assert result.exit_code == 0, result.output
    assert result.output.count("in all 10.0") == 4


def run_job(lab: Lab, aggregation: Aggregation, script: str) -> list[tuple[int, str]]:
    """How each rank ended, and what it said."""
    ranks = [
        lab.popen(
            rank,
            [sys.executable, "-c", script],
            {**os.environ, **lab.environment(rank), **aggregation.environment(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    said = [rank.communicate(timeout=60)[0].strip() for rank in ranks]
    return [(rank.returncode, text) for rank, text in zip(ranks, said, strict=True)]


@lab_test
@pytest.mark.chaos
@pytest.mark.timeout(200)
@pytest.mark.parametrize("transport", ["udp", "xdp"])
def test_racks_outlive_a_killed_rank(transport: str) -> None:
    if transport == "xdp" and (reason := no_xdp()):
        pytest.skip(reason)
    with Lab(4, racks=2, aggregators=3, levels=2, transport=transport) as lab:
        aggregation = Aggregation.of(lab)
        for place, argv in aggregation.commands():
            lab.popen(place, argv, {**os.environ, **aggregation.settings()})
        told = run_job(lab, aggregation, LOSE_ONE)
        assert told.pop(1) == (-signal.SIGKILL, "")
        assert told == [(0, "lost 1")] * 3
        assert run_job(lab, aggregation, SUM) == [(0, "in all 10.0")] * 4
