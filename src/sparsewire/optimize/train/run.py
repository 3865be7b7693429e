"""One rank of an optimisation, from the file to the last epoch."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np

from sparsewire import Communicator, MismatchError
from sparsewire.meeting.launcher import join
from sparsewire.optimize.train.data import SignedRows, load, split
from sparsewire.optimize.train.losses import LOSSES
from sparsewire.optimize.train.methods import METHODS, Method
from sparsewire.optimize.train.problem import Problem
from sparsewire.optimize.train.report import Epoch, Item, Setting
from sparsewire.optimize.train.request import Request

Follow = Callable[[Item], None]
"""Takes the setting, and then each epoch as it ends; called on rank 0 only."""


def run_rank(request: Request, follow: Follow) -> None:
    """Join the other ranks that a launcher started, or be the only one, and optimise.

    Raises OptimizeError for unusable data, MismatchError where ranks have different data or
    options, and what the collectives raise. An error on one rank ends all.
    """
    with join() as comm:
        try:
            optimize(comm, request, follow)
        except Exception as error:
            # The others may already wait for this rank.
            comm.abort(f"rank {comm.rank} failed: {error}")
            raise


def optimize(comm: Communicator, request: Request, follow: Follow) -> None:
    """Run all epochs of the request; collective."""
    tell: Follow = follow if comm.rank == 0 else _ignore
    examples = load(request)
    _check_alike(comm, request, examples)
    training, test = split(examples, request.test_share, request.seed)
    rows, features = training.shape
    l2 = 1 / rows if request.l2 is None else request.l2
    problem = Problem(LOSSES[request.model], l2, rows, features)
    method = METHODS[request.method](comm, problem, training, test, request)
    tell(
        Setting(
            data=examples.name,
            model=problem.loss.name,
            method=request.method,
            ranks=comm.world_size,
            rows=rows,
            test_rows=test.shape[0],
            features=features,
            row_nonzeros=training.nnz / rows,
            positive=examples.positive,
            l2=l2,
            step_size=method.step_size,
            steps=method.steps,
            dense_bytes=method.dense_bytes,
        )
    )
    _run_epochs(comm, method, request.epochs, tell)


def _run_epochs(comm: Communicator, method: Method, epochs: int, tell: Follow) -> None:
    seconds, sent = 0.0, 0
    tell(_epoch(comm, method, 0, seconds, sent))
    for number in range(1, epochs + 1):
        comm.barrier()
        started, sent_before = time.perf_counter(), comm.stats()["bytes_sent"]
        method.epoch()
        seconds += time.perf_counter() - started
        sent += comm.stats()["bytes_sent"] - sent_before
        tell(_epoch(comm, method, number, seconds, sent))


def _epoch(comm: Communicator, method: Method, number: int, seconds: float, sent: int) -> Epoch:
    costs = np.array([seconds, method.communication.seconds, sent], np.float64)
    seconds, communication_s, bytes_sent = comm.all_reduce(costs, op="avg").tolist()
    return Epoch(
        number,
        **asdict(method.scores()),
        seconds=seconds,
        communication_s=communication_s,
        bytes_sent=bytes_sent,
    )


def _ignore(item: Item) -> None:
    pass


def _check_alike(comm: Communicator, request: Request, examples: SignedRows) -> None:
    """Ranks that optimise different functions would not notice, and agree on nonsense."""
    # The same file may have another name on another host.
    options = json.dumps(asdict(replace(request, data="")), sort_keys=True)
    checksum = zlib.crc32(options.encode(), examples.fingerprint())
    highest, lowest = comm.all_reduce(np.array([checksum, -checksum]), op="max")
    if highest != -lowest:
        raise MismatchError(
            "ranks have different data or options: "
            "start all with the same options and copies of one file"
        )
