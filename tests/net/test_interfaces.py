"""Ranks whose hosts have several links: lanes are dealt to them, and all carry traffic."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sparsewire.tools.lab import Lab, available

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(available() is not None, reason=f"{available()}"),
]

SUMS = """
import numpy as np
import sparsewire
from sparsewire.tools.measure.conditions import Usage

INTERFACES = "eth0", "eth1"

with sparsewire.init() as comm:
    x = np.random.default_rng(comm.rank).standard_normal(3_000_000).astype(np.float32)
    of = [np.random.default_rng(r).standard_normal(3_000_000) for r in range(comm.world_size)]
    expected = sum(each.astype(np.float32) for each in of)
    comm.barrier()
    before = [Usage.now(name).interface_bytes_sent for name in INTERFACES]
    comm.all_reduce(x)
    comm.barrier()
    after = [Usage.now(name).interface_bytes_sent for name in INTERFACES]
    assert np.array_equal(x, expected)
    print(*((b - a) / x.nbytes for a, b in zip(before, after)))
"""

GATHERS = """
import numpy as np
import sparsewire
from sparsewire.tools.measure.conditions import Usage

INTERFACES = "eth0", "eth1"

with sparsewire.init() as comm:
    length = 4_000_000
    indices = np.arange(comm.rank, length, 40)
    vector = sparsewire.SparseVector(indices, np.full(len(indices), comm.rank + 1.0), length)
    comm.barrier()
    before = [Usage.now(name).interface_bytes_sent for name in INTERFACES]
    for rank, given in enumerate(comm.all_gather(vector)):
        assert np.array_equal(given.indices, np.arange(rank, length, 40))
        assert np.array_equal(given.values, np.full(len(given.indices), rank + 1.0))
    comm.barrier()
    after = [Usage.now(name).interface_bytes_sent for name in INTERFACES]
    sent = [b - a for a, b in zip(before, after)]
    print(*(each / sum(sent) for each in sent))
"""

ERROR = """
import sparsewire
try:
    sparsewire.init(timeout=20)
except (sparsewire.Error, ValueError) as error:
    print(type(error).__name__, error)
"""


LABELLED = """
from pyroute2 import IPRoute
from sparsewire._core import interfaces
from sparsewire.meeting.contact.sockets import address_of_interface
with IPRoute() as ip:
    (index,) = ip.link_lookup(ifname="eth1")
    ip.flush_addr(index=index)
    ip.addr("add", index=index, address="10.9.0.1", prefixlen=24, label="eth1:vip")
print(sorted(name for name, *_ in interfaces()), address_of_interface("eth1"))
"""


def run(lab: Lab, script: str, interfaces: list[str]) -> list[str]:
    """What the rank of each host prints, where SPARSEWIRE_IFNAME says so."""
    processes = [
        lab.popen(
            host,
            [sys.executable, "-c", script],
            {**os.environ, **lab.environment(host), "SPARSEWIRE_IFNAME": named},
            stdout=subprocess.PIPE,
            text=True,
        )
        for host, named in enumerate(interfaces)
    ]
    said = [process.communicate(timeout=50)[0].strip() for process in processes]
    assert not any(process.returncode for process in processes), said
    return said


@pytest.mark.parametrize("ipv6", [False, True])
def test_traffic_goes_over_all_interfaces_that_are_named(ipv6: bool) -> None:
    with Lab(2, "200mbit", links=2, ipv6=ipv6) as lab:
        said = run(lab, SUMS, ["eth0,eth1", "eth0,eth1"])
    # Half of the values of a host go out, and half of the results come back, in equal shares.
    shares = [float(share) for line in said for share in line.split()]
    assert all(0.4 < share < 0.6 for share in shares), shares


def test_exchanges_go_over_all_interfaces_too() -> None:
    with Lab(2, "200mbit", links=2) as lab:
        said = run(lab, GATHERS, ["eth0,eth1", "eth0,eth1"])
    for line in said:
        assert all(0.3 < float(share) < 0.7 for share in line.split()), said


def test_traffic_goes_over_the_one_interface_that_is_named() -> None:
    with Lab(2, "200mbit", links=2) as lab:
        said = run(lab, SUMS, ["eth1", "eth1"])
    for line in said:
        first, second = map(float, line.split())
        assert first < 0.01
        assert 0.9 < second < 1.2


def test_ranks_that_name_different_numbers_of_interfaces_are_told() -> None:
    with Lab(2, links=2) as lab:
        one, other = run(lab, ERROR, ["eth0,eth1", "eth1"])
    assert one.startswith("MismatchError ranks disagree on interfaces: 2 on rank 0, 1 on rank 1")
    assert other.startswith("MismatchError ranks disagree on interfaces: 1 on rank 1, 2 on rank 0")
    assert "SPARSEWIRE_IFNAME" in one


def test_an_address_with_a_label_is_its_interfaces() -> None:
    with Lab(2, links=2) as lab:
        said, _ = run(lab, LABELLED, ["eth0", "eth0"])
    assert said == "['eth0', 'eth1', 'lo'] 10.9.0.1"
