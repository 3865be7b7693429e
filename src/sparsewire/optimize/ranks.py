"""The ranks of a task: they meet, make sure that all want the same, and fail together."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

import numpy as np

from sparsewire import Communicator, MismatchError
from sparsewire.meeting.connect import join
from sparsewire.optimize.problems.sources import Examples
from sparsewire.optimize.task import Task


@contextmanager
def joined() -> Iterator[Communicator]:
    """Join the ranks that a launcher started, or be the only one; an error on one ends all."""
    with join() as comm:
        try:
            yield comm
        except Exception as error:
            # The others may already wait for this rank.
            comm.abort(f"rank {comm.rank} failed: {error}")
            raise


def check_alike(comm: Communicator, task: Task, examples: Examples) -> None:
    """Raise MismatchError on all ranks where some have other options or data; collective.

    Ranks that minimise different functions would not notice, and agree on nonsense. `examples` are
    as they were read: what is computed from them may differ between processors.
    """
    # The same file may have another name on another host.
    options = json.dumps(asdict(replace(task, data="")), sort_keys=True)
    checksum = zlib.crc32(options.encode(), examples.fingerprint())
    highest, lowest = comm.all_reduce(np.array([checksum, -checksum]), op="max")
    if highest != -lowest:
        raise MismatchError(
            "ranks have different data or options: "
            "start all with the same options and copies of one file"
        )
