"""Seconds until all readers of a tree have a message: by a model of links, and as measured.

    python benchmarks/weights_tree_model.py --record

Each reader's link is full duplex, and shared evenly by what leaves, and by what comes. A stripe
comes at the speed of the slowest link on its way; each relay passes on a part once it has it whole.
The publisher tells readers one after the other. Processors cost nothing, so hosts that share some
take longer. The trees are those of sparsewire.weights.sync.fan_out.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from functools import cache
from typing import NamedTuple

import records

from sparsewire.tools.lab.quantities import parse_link
from sparsewire.weights.sync.chain import Entry
from sparsewire.weights.sync.channel import _PART_BYTES
from sparsewire.weights.sync.fan_out import Candidate, sources, stripes
from sparsewire.weights.sync.plan import Plan

# Of Ethernet, IP and TCP with timestamps, against 1514 bytes on the link.
PAYLOAD_SHARE = 1448 / 1514
COUNTS = (1, 8, 32, 100, 1000)
SIZES = {"4MiB": 4 << 20, "100MB": 10**8}
LINKS = ("10mbit", "25mbit", "100mbit", "1gbit")


class Network(NamedTuple):
    """What links carry of messages, bytes a second; seconds from one host to another; and seconds
    that a publisher spends on telling a reader, and a relay on a part."""

    rate: float
    latency_s: float = 100e-6
    tell_s: float = 200e-6
    part_s: float = 500e-6


def network_of(link: str, measured: dict[str, records.Row]) -> Network:
    """With a publisher that tells readers as fast as one was found to."""
    bits = parse_link(link)
    assert bits is not None
    network = Network(bits / 8 * PAYLOAD_SHARE)
    crowd = measured.get("crowd/1000")
    return network._replace(tell_s=crowd["told_s"] / 1000) if crowd else network


def plan_bytes(size: int) -> int:
    """What a reader is told, with the headers of its packet."""
    key = bytes(16)
    entry = Entry(10**3, 10**3, key, key, size, key)
    plan = Plan("0" * 16, 10**3, key, size, [entry], 2 * ["10.0.0.100:40000"])
    return len(json.dumps(plan.document(), separators=(",", ":"))) + 4 + 66


def seconds(readers: int, size: int, network: Network) -> float:
    """From the publisher's first word on, until the last reader has the last byte."""
    spans = stripes(size)
    found = sources([Candidate(relays=True)] * readers, len(spans))
    leaving = Counter(source for own in found for source in own)
    part = min(_PART_BYTES, size)
    tell_s = network.tell_s + plan_bytes(size) / network.rate

    def told_s(reader: int | None) -> float:
        # A connection is made in one round trip, and proves the secret in two more.
        return 0 if reader is None else (reader + 1) * tell_s + 6 * network.latency_s

    @cache
    def rate(reader: int, stripe: int) -> float:
        source = found[reader][stripe]
        shared = network.rate / max(leaving[source], len(spans))
        return shared if source is None else min(shared, rate(source, stripe))

    @cache
    def first_part_s(reader: int, stripe: int) -> float:
        source = found[reader][stripe]
        ready = told_s(reader)
        if source is not None:
            ready = max(ready, first_part_s(source, stripe) + network.part_s)
        return ready + part / rate(reader, stripe) + network.latency_s

    return max(
        first_part_s(reader, stripe) + (span.end - span.begin - part) / rate(reader, stripe)
        for reader in range(readers)
        for stripe, span in enumerate(spans)
    )


def rows() -> dict[str, records.Row]:
    """For each link and size: the model's seconds, and how many times those of one reader."""
    measured = records.load().get("weights_network", {"figures": {}})["figures"]
    found = {}
    for link in LINKS:
        network = network_of(link, measured)
        for name, size in SIZES.items():
            alone = seconds(1, size, network)
            for count in COUNTS:
                row = {"modelled_s": seconds(count, size, network)}
                row["modelled_over_one"] = row["modelled_s"] / alone
                beside = measured.get(f"tree/{link}/{count}") if name == "4MiB" else None
                if beside:
                    row |= {"measured_s": beside["wire_s"]}
                    row |= {"measured_over_modelled": beside["wire_s"] / row["modelled_s"]}
                found[f"model/{link}/{name}/{count}"] = row
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="keep it in the record")
    given = parser.parse_args()
    for name, row in rows().items():
        print(f"{name:26}", *(f"{key} {value:.4g}" for key, value in row.items()))
        if given.record:
            records.keep("weights_network", name, row)


if __name__ == "__main__":
    main()
