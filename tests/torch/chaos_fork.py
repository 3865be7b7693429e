"""Kill ranks whose DataLoader workers live, and print how long their peers take to name them.

    python tests/torch/chaos_fork.py 50

Ends with status 1 where a death was missed, blamed on another rank, or seen after more than 1 s.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from loader_death import killed_amid_training
from ranks import Failure, Ranks

RANKS = 3
LIMIT_S = 1.0


def kill_one(victim: int) -> list[float] | None:
    """Seconds until each peer named the victim; None where one did not."""
    ranks = Ranks(RANKS)
    try:
        with tempfile.TemporaryDirectory() as directory:
            note = str(Path(directory, "note"))
            outcomes = ranks.outcomes(killed_amid_training, victim, note)
    finally:
        ranks.close()
    outcomes.pop(victim)
    named = [outcome for outcome in outcomes if not isinstance(outcome, Failure)]
    if [rank for rank, _ in named] != [victim] * (RANKS - 1):
        print(f"rank {victim} was killed: {[str(outcome) for outcome in outcomes]}", flush=True)
        return None
    return [seconds for _, seconds in named]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("kills", type=int, nargs="?", default=50)
    kills = parser.parse_args().kills
    results = [kill_one(number % RANKS) for number in range(kills)]
    latencies = sorted(seconds for result in results if result for seconds in result)
    missed = results.count(None)
    late = sum(seconds > LIMIT_S for seconds in latencies)
    print(f"{kills} kills, {missed} missed, {late} of {len(latencies)} later than {LIMIT_S:g} s")
    if latencies:
        median, most = statistics.median(latencies), latencies[-1]
        print(f"named after {1000 * median:.1f} ms (median), {1000 * most:.1f} ms (most)")
    raise SystemExit(bool(missed or late))


if __name__ == "__main__":
    main()
