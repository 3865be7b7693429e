"""Bytes and seconds of a round by each way to add up, in the lab; and bytes against their formula.

    python benchmarks/outer_sums.py lab --record
    python benchmarks/outer_sums.py formula --record

In the lab, as root, each member is a host. All hosts share the processors of this machine, which a
cluster's would not: seconds are those of the slowest member in the quickest round, and `cpu_s` are
a member's own. The setting is that of SparseLoCo (arXiv 2508.15706): 64 of 4096 elements, 2 bits.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import records

import sparsewire
from sparsewire.compress import Draws, parse
from sparsewire.tools.lab import Lab
from sparsewire.torch.outer.sums import formula
from sparsewire.torch.outer.sums.choice import sums_for
from sparsewire.torch.outer.sums.parts import parts_of
from sparsewire.torch.outer.sums.sums import Sums, Vector

OPERATOR = "centroids:64+span-top-k:64:4096"
KEPT_SHARE = 64 / 4096
COLLECTIVES = {"dense": 2, "gather": 1, "owned": 2, "exact": 2, "pairs": 1}
"""Of each way that is measured: a dense sum has a small one beside it."""
WAYS = list(COLLECTIVES)
SHARED = {"independent": 0.0, "correlated": 0.5}
"""Which share of the variance of their vectors members have in common."""
SPREAD = 0.5
"""Of the logarithms of elements' sizes, in correlated vectors: some elements are large everywhere,
as those of gradients are."""
TIMEOUT_S = 300.0
Row = dict[str, Any]


def way_of(name: str, operator: str, elements: int) -> Sums:
    """What is measured under this name."""
    if name == "dense":
        return sums_for("dense", elements)
    if name == "pairs":
        return sums_for(operator, elements, topology="pairs")
    if name == "gather":
        return sums_for(operator, elements, way="gather")
    return sums_for(operator, elements, down=operator if name == "owned" else "exact")


def vector_of(elements: int, rank: int, overlap: str) -> Vector:
    """What a member contributes: normal elements, some of which all members share."""
    own = formula.normal(elements, rank)
    share = SHARED[overlap]
    if not share:
        return own
    common = formula.normal(elements, 1000)
    sizes = np.exp(SPREAD * formula.normal(elements, 1001))
    vector: Vector = (np.sqrt(share) * common + np.sqrt(1 - share) * own) * sizes
    return vector.astype(np.float32)


def expected(name: str, operator: str, elements: int, members: int) -> float:
    """Bytes of a member each way by the formula, if what members keep is independent."""
    if name == "dense":
        return formula.dense_bytes(elements, members)
    if name in ("gather", "pairs"):
        message = formula.message_bytes(parse(operator, elements))
        of_way = formula.gather_bytes if name == "gather" else formula.pairs_bytes
        return of_way(message, members)
    sizes = [part.stop - part.start for part in parts_of(elements, members)]
    made = {size: parse(operator, size) for size in sizes}
    union = formula.union_share(KEPT_SHARE, members)
    up = {size: formula.message_bytes(each) for size, each in made.items()}
    down = {
        size: formula.answer_bytes(each, each, members)
        if name == "owned"
        else formula.exact_bytes(size, union)
        for size, each in made.items()
    }
    return formula.owned_bytes([up[size] for size in sizes], [down[size] for size in sizes])


def on_link(interface: str) -> tuple[int, int]:
    """Bytes that this host's interface has sent and received, with all headers."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == interface:
            numbers = counters.split()
            return int(numbers[8]), int(numbers[0])
    raise SystemExit(f"there is no interface {interface}")


def counted(communicator: sparsewire.Communicator) -> tuple[int, int]:
    communicator.barrier()
    stats = communicator.stats()
    communicator.barrier()  # Else what others send next might be counted already.
    return stats["bytes_sent"], stats["bytes_received"]


def be_member(ways: list[str], overlaps: list[str], elements: int, rounds: int, text: str) -> None:
    """Measure as one host, and tell a line for each way."""
    interface = os.environ["SPARSEWIRE_IFNAME"]
    with sparsewire.init(timeout=TIMEOUT_S) as communicator:
        for overlap in overlaps:
            vector = vector_of(elements, communicator.rank, overlap)
            for name in ways:
                way = way_of(name, text, elements)
                told = [one_round(communicator, way, vector, interface) for _ in range(rounds + 1)]
                for row in told[1:]:
                    print(json.dumps({"case": f"{overlap}/{name}", **row}), flush=True)


def one_round(
    communicator: sparsewire.Communicator, way: Sums, vector: Vector, interface: str
) -> Row:
    before, link_before = counted(communicator), on_link(interface)
    begin, cpu = time.monotonic(), time.process_time()
    way.run(communicator, vector, TIMEOUT_S)
    seconds, cpu_s = time.monotonic() - begin, time.process_time() - cpu
    way.commit()
    after, link_after = counted(communicator), on_link(interface)
    up, down = (now - then for now, then in zip(after, before, strict=True))
    link_up, link_down = (now - then for now, then in zip(link_after, link_before, strict=True))
    return {
        "seconds": seconds,
        "cpu_s": cpu_s,
        "up": up,
        "down": down,
        "link_up": link_up,
        "link_down": link_down,
    }


def lab(given: argparse.Namespace) -> Iterator[tuple[str, Row]]:
    """Rows of all ways for each number of members."""
    for members in given.members:
        told = lab_of(given, members)
        unions = {each: union_over_kept(given, each, members) for each in given.overlaps}
        for case in told[0]:
            overlap, name = case.split("/")
            rounds = list(zip(*(each[case] for each in told), strict=True))
            row = merged(rounds)
            link_bytes = formula.link_bytes(row["up_bytes"], members, COLLECTIVES[name])
            row["link_over_formula"] = row["link_up_bytes"] / link_bytes
            row["union_over_kept"] = unions[overlap]
            yield f"{given.link}/{overlap}/{name}/{members}", row


def union_over_kept(given: argparse.Namespace, overlap: str, members: int) -> float:
    """How many positions some member keeps, over those that one keeps."""
    operator = parse(given.operator, given.elements)
    union = np.zeros(given.elements, np.bool_)
    for rank in range(members):
        vector = vector_of(given.elements, rank, overlap)
        kept = operator.compress(vector, Draws(0)) != 0
        union |= kept
    return float(union.sum() / kept.sum())


def lab_of(given: argparse.Namespace, members: int) -> list[dict[str, list[Row]]]:
    """What each member tells of each of its cases, round by round."""
    options = [
        *("member", "--elements", str(given.elements), "--rounds", str(given.rounds)),
        *("--operator", given.operator, "--ways", *given.ways, "--overlaps", *given.overlaps),
    ]
    argv = [sys.executable, __file__, *options]
    # With a loss, even of 0, packets go one by one, so that all their headers are counted.
    with Lab(members, given.link, loss=0.0) as site:
        processes = [
            site.popen(
                place,
                argv,
                {**os.environ, **site.environment(place), "OMP_NUM_THREADS": "1"},
                stdout=-1,
                text=True,
            )
            for place in range(members)
        ]
        outputs = [process.communicate()[0] for process in processes]
        if any(process.returncode for process in processes):
            raise SystemExit("a member failed: see what it said above")
    return [by_case(output) for output in outputs]


def by_case(output: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for line in output.splitlines():
        row = json.loads(line)
        found.setdefault(row.pop("case"), []).append(row)
    return found


def merged(rounds: list[tuple[Row, ...]]) -> Row:
    """Of rounds, in each of which every member tells a row."""
    mean = {
        name: float(np.mean([row[name] for each in rounds for row in each]))
        for name in rounds[0][0]
    }
    return {
        "round_s": min(max(row["seconds"] for row in each) for each in rounds),
        "cpu_s": mean["cpu_s"],
        "up_bytes": mean["up"],
        "down_bytes": mean["down"],
        "most_down_bytes": max(row["down"] for each in rounds for row in each),
        "link_up_bytes": mean["link_up"],
        "link_down_bytes": mean["link_down"],
    }


def formulas(given: argparse.Namespace) -> Iterator[tuple[str, Row]]:
    """What the engine counts over the formula, for members that are threads of this process."""
    for elements in given.sizes:
        for members in given.members:
            for name in given.ways:
                up, down = np.mean(on_threads(given, name, elements, members), 0)
                by_formula = expected(name, given.operator, elements, members)
                yield (
                    f"formula/{name}/{elements}/{members}",
                    {
                        "formula_bytes": by_formula,
                        "up_over_formula": up / by_formula,
                        "down_over_formula": down / by_formula,
                    },
                )


def on_threads(
    given: argparse.Namespace, name: str, elements: int, members: int
) -> list[tuple[int, ...]]:
    def member(rank: int) -> tuple[int, ...]:
        store = sparsewire.FileStore(directory)
        with sparsewire.init(store, rank=rank, world_size=members) as communicator:
            vector = vector_of(elements, rank, "independent")
            way = way_of(name, given.operator, elements)
            before = counted(communicator)
            way.run(communicator, vector, TIMEOUT_S)
            return tuple(np.subtract(counted(communicator), before).tolist())

    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(members) as pool:
        return list(pool.map(member, range(members)))


CASES: dict[str, Callable[[argparse.Namespace], Iterator[tuple[str, Row]]]] = {
    "lab": lab,
    "formula": formulas,
}
MEMBERS = {"lab": [4, 8, 16], "formula": [2, 4, 8], "member": []}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", choices=[*CASES, "member"])
    parser.add_argument("--members", type=int, nargs="*")
    parser.add_argument("--elements", type=int, default=1 << 22, help="of the vector, in the lab")
    parser.add_argument("--sizes", type=int, nargs="*", default=[10**6, 25 * 10**6])
    parser.add_argument("--operator", default=OPERATOR)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    parser.add_argument("--overlaps", nargs="*", choices=SHARED, default=list(SHARED))
    parser.add_argument("--link", default="100mbit", help="speed of each host's link")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="keep it in the record")
    given = parser.parse_args()
    if given.case == "member":
        be_member(given.ways, given.overlaps, given.elements, given.rounds, given.operator)
        return
    given.members = given.members or MEMBERS[given.case]
    for row, figures in CASES[given.case](given):
        print(row, *(f"{name} {value:.5g}" for name, value in figures.items()), sep="\n  ")
        if given.record:
            records.keep("outer_sums", row, figures)


if __name__ == "__main__":
    main()
