"""Freezes ranks of small jobs at random moments, and tells whom the others blame and how soon.

    python tests/chaos/freeze.py --freezes 40 --seed 1

Every other freeze ends within the grace, and the bits are compared with those of a run without one.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import zlib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from freezing import await_frozen, call, freeze_soon, frozen_file, inputs, thaw
from meeting import meet, tell, wait_for
from support import environment_of, run_ranks

import sparsewire

WORLD = 4
PEER_TIMEOUT_S = 2.0
TRANSPORTS = ["colocated", "colocated-3-lanes", "dedicated"]
KINDS = ["dense", "sparse", "large", "reader", "idle"]
STEPS = 4
LIMIT_S = 100.0


def outlive(victim: int, kind: str, delay: float) -> tuple[str, int, float] | None:
    """Type and rank of the error that this rank gets, and how long after the freeze."""
    with sparsewire.init() as comm:
        # Made before: whoever is not in a call does not hear of an error.
        x = inputs(comm, kind, 0)
        meet("connected")
        if comm.rank == victim:
            freeze_soon(delay)
        error, at = first_error(comm, kind, x)
        if comm.rank == victim:
            return None
        tell("raised")
        if comm.rank == (victim + 1) % WORLD:
            wait_for("raised", set(range(WORLD)) - {victim})
            thaw(victim)
        return type(error).__name__, getattr(error, "rank", -1), at - float(frozen_at())


def first_error(comm: sparsewire.Communicator, kind: str, x: Any) -> tuple[Exception, float]:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            if kind == "idle":
                # Nothing is in flight when the rank freezes.
                time.sleep(0.5)
                comm.barrier()
            else:
                call(comm, kind, x)
        except sparsewire.Error as error:
            return error, time.time()
    raise AssertionError("nothing was lost")


def frozen_at() -> str:
    return frozen_file().read_text()


def go_on(victim: int, kind: str, delay: float, asleep: float) -> list[int]:
    """Checksums of collectives; rank `victim` is frozen for `asleep` seconds in one of them."""
    with sparsewire.init() as comm:
        meet("connected")
        if asleep and comm.rank == victim:
            freeze_soon(delay)
        if asleep and comm.rank == (victim + 1) % WORLD:
            await_frozen(victim)
            time.sleep(asleep)
            thaw(victim)
        return [checksum(call(comm, kind, inputs(comm, kind, step))) for step in range(STEPS)]


def checksum(result: Any) -> int:
    if isinstance(result, list):
        return zlib.crc32(repr([checksum(part) for part in result]).encode())
    if isinstance(result, sparsewire.SparseVector):
        return zlib.crc32(result.indices.tobytes() + result.values.tobytes())
    return zlib.crc32(np.asarray(result).tobytes())


def freeze(number: int, chance: random.Random) -> tuple[bool, float]:
    """Whether all went as it should, and the longest time until a rank knew."""
    transport = TRANSPORTS[number % len(TRANSPORTS)]
    kind = KINDS[(number // 2) % len(KINDS)]
    # Only the last rank is a mere reader.
    victim = WORLD - 1 if kind == "reader" else chance.randrange(WORLD)
    delay = chance.uniform(0.0, 0.6)
    with environment_of(transport) as environment:
        environment = {
            **environment,
            "SPARSEWIRE_PEER_TIMEOUT": str(PEER_TIMEOUT_S),
            "SPARSEWIRE_LINK": "5e-5,1e-9,4e-9",
        }
        settings: Any = {"environment": environment, "deadline_s": LIMIT_S}
        case = f"{number:3d}  {transport:17s}  {kind:6s}  rank {victim}  after {delay:.2f} s"
        if number % 2:
            asleep = chance.uniform(0.5, 1.5)
            with_freeze, without = (
                run_ranks(WORLD, go_on, victim, kind, delay, time_, **settings)
                for time_ in (asleep, 0.0)
            )
            good = with_freeze == without
            print(f"{case}  thawed after {asleep:.2f} s: {'same bits' if good else 'WRONG'}")
            return good, 0.0
        results = run_ranks(WORLD, outlive, victim, kind, delay, **settings)
    seen = [result for result in results if result is not None]
    named = sorted({f"{name}({rank})" for name, rank, _ in seen})
    longest = max(seconds for *_, seconds in seen)
    print(f"{case}  {', '.join(named)} after {longest:.2f} s")
    return named == [f"PeerLost({victim})"] and len(seen) == WORLD - 1, longest


def freezes(count: int, seed: int) -> tuple[list[tuple[bool, float]], list[bool]]:
    """What came of so many freezes for good, and of as many thaws."""
    os.environ["PYTHONUNBUFFERED"] = "1"
    chance = random.Random(seed)
    outcomes = [freeze(number, chance) for number in range(2 * count)]
    return outcomes[::2], [good for good, _ in outcomes[1::2]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--freezes", type=int, default=40, help="how many freezes for good")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    lost, thawed = freezes(arguments.freezes, arguments.seed)
    delays = sorted(seconds for _, seconds in lost)
    named = sum(good for good, _ in lost)
    same = sum(thawed)
    print(f"seed {arguments.seed}: the right rank on all others in {named} of {len(lost)} freezes,")
    print(f"after {delays[len(delays) // 2]:.2f} s (median), {delays[-1]:.2f} s (longest);")
    print(f"the same bits after {same} of {len(thawed)} thaws")
    return 0 if named == len(lost) and same == len(thawed) else 1


if __name__ == "__main__":
    sys.exit(main())
