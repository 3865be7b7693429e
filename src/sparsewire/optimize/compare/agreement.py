"""Makes sure that all ranks of a study minimise one function, and measure it alike."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, replace

import numpy as np

from sparsewire import Communicator, MismatchError
from sparsewire.optimize.compare.request import Request
from sparsewire.optimize.problems.linear_model import LinearModel
from sparsewire.optimize.problems.problem import Floats


def check_alike(comm: Communicator, request: Request, problem: LinearModel) -> None:
    """Raise MismatchError on all ranks where some have other options or data; collective."""
    # The same file may have another name on another host.
    options = json.dumps(asdict(replace(request, data="")), sort_keys=True)
    # Losses at one point tell data apart, up to the last bits, in which processors may differ.
    at = np.sin(np.arange(1.0, problem.dimension + 1))
    loss = f"{problem.dimension} {problem.m} {problem.loss(at):.9e}"
    checksum = zlib.crc32(loss.encode(), zlib.crc32(options.encode()))
    highest, lowest = comm.all_reduce(np.array([checksum, -checksum]), op="max")
    if highest != -lowest:
        raise MismatchError(
            "ranks have different data or options: "
            "start all with the same options and copies of one file"
        )


def agree(comm: Communicator, problem: LinearModel, solution: Floats) -> Floats:
    """Give every rank the constants and the solution of rank 0, to the last bit; collective.

    Step sizes and endings follow from them, and linear algebra rounds differently from one
    processor to the next. Returns the solution.
    """
    constants = [problem.L, problem.L_max, problem.mu, *problem.L_i, *problem.mu_i]
    values = np.array([*constants, *solution])
    # What the other ranks add is 0, so that the sum has the bits of rank 0.
    agreed = comm.all_reduce(values if comm.rank == 0 else np.zeros_like(values))
    problem.L, problem.L_max, problem.mu = agreed[:3].tolist()
    each = agreed[3 : len(constants)].tolist()
    problem.L_i, problem.mu_i = tuple(each[: problem.workers]), tuple(each[problem.workers :])
    return np.array(agreed[len(constants) :])
