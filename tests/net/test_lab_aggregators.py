"""Hosts of aggregators in the lab: their places, their links, and what ranks are told of them."""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Iterator

import pytest
from pyroute2 import IPRoute
from pyroute2.netlink.rtnl import TC_H_ROOT
from test_lab import invoke, lab_test
from xdp_echo import PORT, program, refusal

from sparsewire.tools.lab import Lab, aggregators
from sparsewire.tools.lab.aggregators import Aggregation, needed
from sparsewire.tools.lab.cable import Link
from sparsewire.tools.lab.namespace import Namespace
from sparsewire.tools.lab.network import Host, build
from sparsewire.tools.lab.site import Loopback
from sparsewire.tools.lab.xdp import attach

NO_XDP = refusal()
DATAGRAM = bytes(1000)
SLOW = 20_000_000


def test_aggregators_stand_behind_all_ranks() -> None:
    lab = Lab(2, ranks=2, aggregators=2)
    assert lab.world_size == 4
    assert lab.addresses == ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3", "10.0.0.4"]
    assert [lab.name(place) for place in (3, 4, 5)] == ["rank 3", "aggregator 0", "aggregator 1"]
    assert lab.environment(3)["WORLD_SIZE"] == "4"
    with pytest.raises(ValueError, match="place 4 has no rank"):
        lab.environment(4)


def test_too_many_hosts_are_refused() -> None:
    with pytest.raises(ValueError, match="200 hosts at most"):
        Lab(150, aggregators=51)


def test_ranks_are_told_of_every_aggregator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARSEWIRE_SECRET", raising=False)
    aggregation = Aggregation.of(Loopback(3, 2, "udp"))
    (first, one), (second, other) = aggregation.commands()
    assert (first, second) == (3, 4)
    told = aggregation.environment(0)
    listening = [argv[argv.index("--bind") + 1] for argv in (one, other)]
    assert told["SPARSEWIRE_AGGREGATORS"] == ",".join(listening)
    assert told["SPARSEWIRE_TRANSPORT"] == "udp"
    assert len(told["SPARSEWIRE_SECRET"]) >= 16
    assert one[-2:] == ["--transport", "udp"]


def test_a_site_without_aggregators_forgets_those_of_the_caller() -> None:
    assert Aggregation.of(Loopback(3)).environment(2) == {"SPARSEWIRE_AGGREGATORS": ""}


@pytest.mark.parametrize(
    ("asked", "transport", "count"),
    [(0, None, 0), (0, "tcp", 0), (0, "udp", 1), (0, "xdp", 1), (3, "udp", 3), (2, None, 2)],
)
def test_datagrams_need_an_aggregator(asked: int, transport: str | None, count: int) -> None:
    assert needed(asked, transport) == count


SUM = """
import numpy, os, sparsewire
with sparsewire.init() as communicator:
    vector = numpy.full(5000, communicator.rank + 1.0, numpy.float32)
    communicator.all_reduce(vector)
    assert os.environ["SPARSEWIRE_TRANSPORT"] == "tcp"
    print(vector.min(), vector.max(), os.environ["SPARSEWIRE_AGGREGATORS"].count(","))
"""


@lab_test
def test_ranks_reduce_over_the_aggregators_of_the_lab() -> None:
    options = ("--aggregators", "2", "--aggregator-link", "2gbit", "--transport", "tcp")
    result = invoke("--hosts", "2", *options, "--", sys.executable, "-c", SUM)
    assert result.exit_code == 0, result.output
    found = [line for line in result.stdout.splitlines() if line.startswith("[host")]
    assert sorted(found) == [f"[host {rank}] 3.0 3.0 1" for rank in range(2)]


@lab_test
def test_an_aggregator_that_fails_is_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregators, "_COMMAND", (sys.executable, "-c", "raise SystemExit(3)"))
    waiting = [sys.executable, "-c", "import time; time.sleep(600)"]
    result = invoke("--hosts", "2", "--aggregators", "1", "--grace", "0.1", "--", *waiting)
    assert result.exit_code == 3
    assert "aggregator 0 failed with status 3; 2 hosts still running" in result.stderr


@contextlib.contextmanager
def network(
    link: Link, aggregator_link: Link, *, use_xdp: bool = True
) -> Iterator[tuple[Namespace, Namespace, Namespace]]:
    """A switch, a host and an aggregator's host, connected."""
    with contextlib.ExitStack() as stack:
        switch, host, aggregator = (
            stack.enter_context(contextlib.closing(Namespace(f"lab-test-{name}")))
            for name in ("switch", "host", "aggregator")
        )
        of_aggregator = Host(aggregator, ["10.0.0.2"], aggregator_link)
        build(switch, [Host(host, ["10.0.0.1"], link)], [of_aggregator], use_xdp=use_xdp)
        yield switch, host, aggregator


def shaped() -> dict[str, int]:
    """Interfaces of this namespace that have a token bucket, with its rate in bits per second."""
    with IPRoute() as route:
        names = {link["index"]: link.get_attr("IFLA_IFNAME") for link in route.get_links()}
        return {
            names[qdisc["index"]]: qdisc.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")["rate"]
            * 8
            for qdisc in route.get_qdiscs()
            if qdisc.get_attr("TCA_KIND") == "tbf"
        }


def unshape(name: str) -> None:
    with IPRoute() as route:
        route.tc("del", index=route.link_lookup(ifname=name)[0], parent=TC_H_ROOT)


def echoes(datagrams: int) -> tuple[int, float]:
    """How many datagrams come back from the aggregator's host, and seconds until the last one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
        own.settimeout(2)
        start = last = time.monotonic()
        for _ in range(datagrams):
            own.sendto(DATAGRAM, ("10.0.0.2", PORT))
        count = 0
        with contextlib.suppress(TimeoutError):
            while count < datagrams:
                own.recv(2048)
                count, last = count + 1, time.monotonic()
        return count, last - start


@lab_test
def test_the_link_of_an_aggregator_is_shaped_a_hop_away_from_it() -> None:
    with network(Link(100_000_000, 1500), Link(SLOW, 1500)) as (switch, host, aggregator):
        assert host.call(shaped) == {"eth0": 100_000_000}
        assert switch.call(shaped) == {"port0-0": 100_000_000, "near0-0": SLOW, "far0-0": SLOW}
        assert aggregator.call(shaped) == {}


@lab_test
@pytest.mark.skipif(NO_XDP is not None, reason=f"{NO_XDP}")
def test_what_xdp_sends_is_taken_and_shaped() -> None:
    """On its way back alone: the way there is made free."""
    with network(Link(None, 1500), Link(SLOW, 1500)) as (switch, host, aggregator):
        switch.call(unshape, "near0-0")
        aggregator.call(attach, "eth0", program())
        # It knows the addresses after that.
        assert host.call(echoes, 1)[0] == 1
        count, seconds = host.call(echoes, 2500)
    assert count > 2000, "a veth loses little of so few"
    least = count * (len(DATAGRAM) + 42) * 8 / SLOW
    assert seconds > 0.75 * least, "the link would carry more than it can"


@lab_test
@pytest.mark.skipif(NO_XDP is not None, reason=f"{NO_XDP}")
def test_what_xdp_sends_is_lost_unless_it_is_accepted() -> None:
    """So the test above would fail if the network did not see to that."""
    with network(Link(None, 1500), Link(None, 1500), use_xdp=False) as (_, host, aggregator):
        aggregator.call(attach, "eth0", program())
        assert host.call(echoes, 3)[0] == 0
