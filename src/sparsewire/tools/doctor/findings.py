"""Faults of a set of ranks, in plain words, and their remedies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sparsewire.options import LinkFigures
from sparsewire.tools.doctor.machine import Machine


@dataclass(frozen=True)
class Finding:
    """A problem and its remedy. One that is `serious` keeps ranks from working."""

    serious: bool
    problem: str
    advice: str


# Below this share of the speed that its driver tells, a link does not give what it should.
_SLOW_SHARE = 0.5
_THREADS = 2
"""Threads of a rank: the program's, and a lane."""


def findings(machines: list[Machine], link: LinkFigures | None) -> list[Finding]:
    """Everything that is worth telling, what is serious first; machines in rank order."""
    found = [
        *_addresses(machines),
        *_loopback_among_hosts(machines),
        *_differences(machines),
        *_slow_kernels(machines),
        *_crowded(machines),
        *(_slow_link(machines, link) if link else []),
    ]
    return sorted(found, key=lambda finding: not finding.serious)


def _addresses(machines: list[Machine]) -> Iterator[Finding]:
    for rank, machine in enumerate(machines):
        if machine.address_problem:
            yield Finding(
                True,
                f"rank {rank} has no address to listen on: {machine.address_problem}",
                "set SPARSEWIRE_IFNAME to the interface that connects the hosts",
            )


def _loopback_among_hosts(machines: list[Machine]) -> Iterator[Finding]:
    several_hosts = len({machine.identity for machine in machines}) > 1
    if several_hosts and (ranks := _ranks(machines, lambda m: m.is_loopback, True)):
        yield Finding(
            True,
            f"{ranks} would listen on loopback, which other hosts cannot reach",
            "set SPARSEWIRE_IFNAME to the interface that connects the hosts, or MASTER_ADDR to an "
            "address on their network",
        )


_ALIKE: list[tuple[str, bool, Callable[[Machine], object], str]] = [
    ("versions of sparsewire", True, lambda m: m.version, "install the same one everywhere"),
    ("MTUs", False, lambda m: m.mtu, "give all interfaces and the switch the same MTU"),
    ("link speeds", False, lambda m: m.speed_mbit, "the slowest one sets the pace of all ranks"),
    ("SIMD levels", False, lambda m: m.simd, "the slowest one sets the pace of all ranks"),
    (
        "TCP congestion controls",
        False,
        lambda m: m.congestion_control,
        "load the same one everywhere, such as cubic: sysctl net.ipv4.tcp_congestion_control",
    ),
]


def _differences(machines: list[Machine]) -> Iterator[Finding]:
    for what, serious, fact, advice in _ALIKE:
        values = dict.fromkeys(map(fact, machines))
        if len(values) > 1:
            told = "; ".join(f"{value} on {_ranks(machines, fact, value)}" for value in values)
            yield Finding(serious, f"ranks have different {what}: {told}", advice)


def _slow_kernels(machines: list[Machine]) -> Iterator[Finding]:
    if ranks := _ranks(machines, lambda m: m.simd, "portable"):
        yield Finding(
            False,
            f"{ranks} adds and scans without AVX2",
            "use a processor that has it, and leave SPARSEWIRE_SIMD unset; a virtual machine may "
            "hide it (QEMU: -cpu host)",
        )


def _crowded(machines: list[Machine]) -> Iterator[Finding]:
    # The hosts of a lab, too, share a name and the machine's processors.
    for host, count in Counter(machine.host for machine in machines).items():
        processors = max(machine.processors for machine in machines if machine.host == host)
        if count > 1 and count * _THREADS > processors:
            yield Finding(
                False,
                f"{count} ranks share the {processors} processors of {host}",
                "expect times that jump; for real work, give every rank two processors",
            )


def _slow_link(machines: list[Machine], link: LinkFigures) -> Iterator[Finding]:
    speeds = [machine.speed_mbit for machine in machines if machine.speed_mbit]
    measured = bandwidth_mbit(link)
    if speeds and measured < _SLOW_SHARE * min(speeds):
        yield Finding(
            False,
            f"the ranks reach {measured:.0f} Mbit/s of the {min(speeds)} Mbit/s of their link",
            "look for other traffic, for a slower switch on the way, and for a busy processor; on "
            "fast links try SPARSEWIRE_LANES with one lane more",
        )


def bandwidth_mbit(link: LinkFigures) -> float:
    """Mbit/s that a rank sends while all ranks send."""
    return 8e-6 / link.byte_s


def _ranks(machines: list[Machine], fact: Callable[[Machine], object], value: object) -> str:
    """The ranks of which a fact has this value, in words; "" for none."""
    ranks = [rank for rank, machine in enumerate(machines) if fact(machine) == value]
    names = ", ".join(map(str, ranks))
    return f"rank {names}" if len(ranks) == 1 else f"ranks {names}" if ranks else ""
