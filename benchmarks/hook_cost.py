"""Measures what compressing hooks cost beyond the backward pass, in plain copies of the gradient.

python benchmarks/hook_cost.py [--elements 25000000] [--turns 9] [--parts] [--record]

Two ranks of one host have a model of one vector, and in turn run its backward pass with a hook that
does nothing, with each hook that compresses, and copy its gradient. All times are medians of rank
0. With --parts, what the steps of a hook take by themselves is printed, too. With --record, the
figures go into records/hook-cost.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import records

RANKS = 2
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}
OPERATORS = {"error_feedback": "block-top-k:0.01", "diana": "qsgd:7"}


def nothing_hook(_: object, bucket):  # type: ignore[no-untyped-def]
    """Each rank keeps its own gradient."""
    import torch

    done: Any = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def measure(rank: int, given: argparse.Namespace, folder: str) -> None:
    """Be one rank; the first one leaves what it measured in the folder."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from sparsewire.torch import hooks

    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group("sparsewire", store=store, rank=rank, world_size=RANKS)
    states = {
        "error_feedback": (hooks.ErrorFeedbackState, hooks.error_feedback_hook),
        "diana": (hooks.DianaState, hooks.diana_hook),
    }

    class Vector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(given.elements))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.weight @ x

    data = torch.randn(given.elements, generator=torch.Generator().manual_seed(rank))
    copy = torch.empty(given.elements)

    def model_with(state: object, hook: Any) -> nn.Module:
        model = DistributedDataParallel(Vector(), bucket_cap_mb=1 << 14)
        model.register_comm_hook(state, hook)
        return model

    models = {"backward": model_with(None, nothing_hook)}
    for name, operator in OPERATORS.items():
        make, hook = states[name]
        models[name] = model_with(make(None, operator), hook)

    def timed(work: Callable[[], object]) -> float:
        dist.barrier()
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    cases: dict[str, Callable[[], object]] = {
        "copy": lambda: copy.copy_(data),
        **{name: lambda model=model: model(data).backward() for name, model in models.items()},
    }
    for _ in range(3):
        for work in cases.values():
            work()
    turns = [{name: timed(work) for name, work in cases.items()} for _ in range(given.turns)]
    if rank == 0:
        Path(folder, "turns.json").write_text(json.dumps(turns))
    dist.destroy_process_group()


def figures_of(turns: list[dict[str, float]], elements: int) -> dict[str, dict[str, float]]:
    """For each hook, what it takes beyond the backward pass."""
    median = {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
    found = {}
    for name, operator in OPERATORS.items():
        beyond = median[name] - median["backward"]
        found[f"{name}/{operator}"] = {
            "beyond_backward_s": beyond,
            "copies": beyond / median["copy"],
            "of_an_element_s": beyond / elements,
            "copy_s": median["copy"],
            "backward_s": median["backward"],
            "turns": len(turns),
        }
    return found


def print_parts(elements: int) -> None:
    """What operators do of a vector, one thread, in nanoseconds an element."""
    import numpy as np

    from sparsewire.compress import Draws, parse

    x = np.random.default_rng(0).standard_normal(elements, np.float32)
    total, copy = np.zeros_like(x), np.empty_like(x)

    def timed(name: str, work: Callable[[], object]) -> object:
        taken = []
        for _ in range(5):
            begin = time.perf_counter()
            result = work()
            taken.append(time.perf_counter() - begin)
        print(f"{name:40} {min(taken) / elements * 1e9:.3f} ns", flush=True)
        return result

    timed("copy", lambda: np.copyto(copy, x))
    for text in OPERATORS.values():
        operator = parse(text, elements)
        code = timed(f"{text} code", lambda operator=operator: operator.code(x, Draws(0, 0, "x")))
        message = timed(f"{text} pack", lambda operator=operator, code=code: operator.pack(code))
        timed(f"{text} read", lambda operator=operator, m=message: operator.read(m))
        timed(f"{text} add", lambda operator=operator, code=code: operator.add(code, total))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=25_000_000)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--parts", action="store_true", help="print what operators take, too")
    parser.add_argument("--record", action="store_true", help="write the record")
    given = parser.parse_args()
    os.environ.update(SETTINGS)
    if given.parts:
        print_parts(given.elements)

    import torch.multiprocessing

    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(measure, (given, folder), RANKS)
        turns = json.loads(Path(folder, "turns.json").read_text())
    for row, figures in figures_of(turns, given.elements).items():
        print(row, json.dumps(records.rounded(figures)))
        if given.record:
            records.keep("hook-cost", row, figures)


if __name__ == "__main__":
    main()
