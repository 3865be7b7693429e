"""Measures what a profile costs: a step's time without one, with one, and after its end, in turn.

python benchmarks/profile_cost.py [--turns 5] [--backend gloo] [--trace] [--keep]

Two ranks on loopback train the demo's language model. Processor time is rank 0's, and says more
where others use the machine. With --keep, the figures go into records/profile-cost.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import records

RANKS = 2
STEPS = 20

# As workers of experiments have it: a step must not give its memory back to the system.
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}


def train(rank: int, given: argparse.Namespace, folder: str) -> None:
    """Be one rank; the first one leaves what it measured in the folder."""
    import numpy as np
    import torch
    import torch.distributed as dist

    import sparsewire.torch
    from sparsewire.tools.training.demo import WIDTH
    from sparsewire.tools.training.lstm import LstmTrainee

    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group(given.backend, store=store, rank=rank, world_size=RANKS)
    trainee = LstmTrainee(np.load(f"{folder}/tokens.npy"), 0, WIDTH)
    steps = iter(range(1_000_000))

    def mean(count: int, name: str) -> dict[str, float]:
        dist.barrier()
        begin, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            trainee.step(next(steps))
        seconds, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
        return {f"{name}_s": seconds / count, f"{name}_cpu_s": cpu_s / count}

    mean(STEPS, "first")
    turns = []
    for turn in range(given.turns):
        without = mean(STEPS, "without")
        directory = f"{folder}/profile-{turn}"
        profile = sparsewire.torch.profile(trainee.ddp, directory, trace=given.trace)
        # It ends as the step behind its last one begins.
        during = mean(5 + 50 + 1, "during")
        assert profile.is_over
        turns.append({**without, **during, **mean(STEPS, "after")})
    if rank == 0:
        Path(folder, "turns.json").write_text(json.dumps(turns))
    dist.destroy_process_group()


def figures_of(turns: list[dict[str, float]], folder: Path) -> dict[str, Any]:
    """Medians over turns, of times and of ratios within a turn, and how many steps were sampled."""
    from sparsewire.profile.records.recorded import load

    def median(values: list[float]) -> float:
        return statistics.median(values)

    def more(name: str, unit: str) -> float:
        return median([turn[name + unit] / turn["without" + unit] - 1 for turn in turns])

    profiles = [load(folder / f"profile-{turn}").ranks[0] for turn in range(len(turns))]
    samples = [sum(step.sampled for step in profile.steps) for profile in profiles]
    return {
        **{name: median([turn[name] for turn in turns]) for name in turns[0]},
        **{f"{name}_more_share": more(name, "_s") for name in ("during", "after")},
        **{f"{name}_more_cpu_share": more(name, "_cpu_s") for name in ("during", "after")},
        "samples": median([float(count) for count in samples]),
        "steps": len(profiles[0].steps),
        "turns": len(turns),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--trace", action="store_true", help="save masks, too")
    parser.add_argument("--keep", action="store_true", help="write the record")
    given = parser.parse_args()
    os.environ.update(SETTINGS)

    import torch.multiprocessing

    from sparsewire.tools.training.corpus import save_corpus
    from sparsewire.tools.training.demo import VOCABULARY

    with tempfile.TemporaryDirectory() as folder:
        save_corpus(None, VOCABULARY, RANKS, Path(folder, "tokens.npy"))
        torch.multiprocessing.spawn(train, (given, folder), RANKS)
        turns = json.loads(Path(folder, "turns.json").read_text())
        figures = figures_of(turns, Path(folder))
    print(json.dumps({"turns": turns, **figures}, indent=1))
    if given.keep:
        row = f"lstm/{given.backend}" + ("/trace" if given.trace else "")
        records.keep("profile-cost", row, figures)


if __name__ == "__main__":
    main()
