"""A job by datagrams in the lab, step by step: aggregators, then ranks that run a script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sparsewire.tools.lab import Lab
from sparsewire.tools.lab.aggregators import Aggregation

Process = subprocess.Popen[str]
STEPS = Path(__file__).parent / "attacks" / "attacked_rank.py"
"""Takes steps for so many seconds, of so many elements; checks each sum."""


def start_aggregators(lab: Lab) -> Aggregation:
    """Those that the lab has hosts for."""
    aggregation = Aggregation.of(lab)
    for place, argv in aggregation.commands():
        start(lab, place, argv, aggregation.settings(), stdout=subprocess.DEVNULL)
    return aggregation


def start_ranks(
    lab: Lab, aggregation: Aggregation, count: int, script: Path, *arguments: object
) -> list[Process]:
    """The first `count` places have one each."""
    argv = python(script, *arguments)
    return [
        start(
            lab,
            rank,
            argv,
            {**aggregation.environment(rank), **lab.environment(rank, world_size=count)},
        )
        for rank in range(count)
    ]


def python(script: Path, *arguments: object) -> list[str]:
    return [sys.executable, str(script), *map(str, arguments)]


def start(lab: Lab, place: int, argv: list[str], env: dict[str, str], **how: Any) -> Process:
    """Where nothing else is said, its output is kept to be read."""
    how = {"stdout": subprocess.PIPE, "text": True, **how}
    return lab.popen(place, argv, {**os.environ, "OMP_NUM_THREADS": "1", **env}, **how)


def what_they_say(ranks: Iterable[Process], timeout: float) -> list[Any]:
    """What each has printed in its last line, as JSON. Raises where one fails."""
    ranks = list(ranks)
    with ThreadPoolExecutor(len(ranks)) as pool:  # They have more to say than a pipe holds.
        said = [pool.submit(rank.communicate, timeout=timeout) for rank in ranks]
        told = [each.result()[0] for each in said]
    failed = [rank for rank, process in enumerate(ranks) if process.returncode]
    assert not failed, f"ranks {failed} failed"
    return [json.loads(each.splitlines()[-1]) for each in told]


def await_ready(ranks: Iterable[Process]) -> None:
    """Until each has printed its first line, once all are connected."""
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline(), "a rank ended before it was ready"
