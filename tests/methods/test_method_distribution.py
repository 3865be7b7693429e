"""Real processes and a simulation of them give the same bits, and only messages cross the wire."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acceptance import CONSTRUCTED, LIBSVM, Check, cases
from counted import CountedDistributed, CountedSimulated
from data_sets import logistic
from scipy.sparse import csr_array
from support import run_ranks

import sparsewire
from sparsewire.compress.compressor import Compressor
from sparsewire.compress.dithering import Ternary
from sparsewire.compress.draws import Draws
from sparsewire.compress.largest import TopK
from sparsewire.compress.message import Reader
from sparsewire.compress.seeded import RandK
from sparsewire.tools.optimize.methods import checkpoint
from sparsewire.tools.optimize.methods.diana import Diana, Isega, VrDianaLsvrg, VrDianaSaga
from sparsewire.tools.optimize.methods.error_feedback import Ef14, Ef21, Ef21Sgdm
from sparsewire.tools.optimize.methods.gradient_descent import Dcgd, Gd, Qsgd
from sparsewire.tools.optimize.methods.local_steps import SparseLoCo
from sparsewire.tools.optimize.methods.marina import Marina
from sparsewire.tools.optimize.methods.method import Method
from sparsewire.tools.optimize.methods.network import Distributed, Network, Simulated
from sparsewire.tools.optimize.methods.random_pairs import NoLoCo
from sparsewire.tools.optimize.problems.examples import from_arrays, shuffled
from sparsewire.tools.optimize.problems.losses import Logistic

RANKS, STEPS, DIMENSION = 4, 20, 1000


def problem(form: str) -> Logistic:
    """Wide, so that a gradient is far longer than what frames a message."""
    random = np.random.default_rng(11)
    features = random.normal(size=(41, DIMENSION)) * (random.random((41, DIMENSION)) < 0.1)
    labels = np.where(random.random(41) < 0.5, -1.0, 1.0)
    rows = csr_array(features) if form == "sparse" else features
    return Logistic(from_arrays(rows, labels), shuffled(41, RANKS, seed=1), l2=0.1)


class Silence(Compressor):
    """Sends nothing, and stands for 0: the shortest message there can be."""

    omega = float("inf")
    contraction = 0.5

    def draw(self, x: Any, draws: Draws) -> None:
        return None

    def pack(self, code: None) -> bytes:
        return b""

    def unpack(self, reader: Reader) -> None:
        return None

    def reconstruct(self, code: None) -> Any:
        return np.zeros(self.dimension)


RAND_K = RandK(DIMENSION, 10, dtype=np.float64)
TOP_K = TopK(DIMENSION, 10, dtype=np.float64)
TERNARY = Ternary(DIMENSION, dtype=np.float64)
MIXED = [RAND_K, TERNARY, RAND_K, RAND_K]
LOCAL = partial(SparseLoCo, gamma=0.1, every=2, delay=3, mix=0.5, participation=0.6)
RUNS: dict[str, tuple[Any, ...]] = {
    "gd": (Gd, "sparse"),
    "dcgd": (Dcgd, "sparse", RAND_K),
    "qsgd": (Qsgd, "dense", RAND_K),
    "diana": (Diana, "sparse", MIXED),
    "diana dense": (Diana, "dense", RAND_K),
    "vr-diana lsvrg": (VrDianaLsvrg, "sparse", RAND_K),
    "vr-diana saga": (VrDianaSaga, "dense", RAND_K),
    "ef14": (Ef14, "sparse", TOP_K),
    "ef21": (Ef21, "sparse", RAND_K),
    "ef21-sgdm": (Ef21Sgdm, "sparse", TOP_K),
    "marina": (Marina, "sparse", RAND_K),
    "sparseloco": (LOCAL, "sparse", TOP_K),
    "noloco": (NoLoCo, "dense"),
    "silence": (Ef21, "sparse", Silence(DIMENSION, np.float64)),
    "one is silent": (Ef21, "sparse", [TOP_K, Silence(DIMENSION, np.float64), TOP_K, TOP_K]),
}


def made(name: str, network: Network) -> Method:
    method, form, *compressors = RUNS[name]
    made: Method = method(problem(form), network, *compressors, seed=9)
    return made


def run_all(names: list[str]) -> dict[str, tuple[bytes, float, int, int]]:
    """The bits of x, bits per worker, and bytes sent: by the messages, and on the wire."""
    results = {}
    with sparsewire.init() as comm:
        for name in names:
            network = CountedDistributed(comm)
            run = made(name, network)
            before = comm.stats()["bytes_sent"]
            for _ in range(STEPS):
                run.step()
            wire = comm.stats()["bytes_sent"] - before
            results[name] = run.x.tobytes(), run.bits, network.bytes_sent, wire
    return results


def test_processes_and_simulation_agree_and_send_messages_only() -> None:
    ranks, check = run_ranks(RANKS, run_all, list(RUNS)), Check(15, CONSTRUCTED)
    for name in RUNS:
        network = CountedSimulated(RANKS)
        run = made(name, network)
        for _ in range(STEPS):
            run.step()
        assert run.x.any() == (name != "silence")
        sent = [results[name][2] for results in ranks]
        assert sum(sent) == network.bytes_sent
        for results in ranks:
            x, bits, _, wire = results[name]
            check.holds("processes and simulation: same bits", x == run.x.tobytes())
            assert bits == run.bits
            # Each message goes to three others, perhaps by way of another rank. Frame, headers and
            # the bitmap of rows take up to 544 bytes, and 1% of a long message.
            assert wire <= (RANKS - 1) * (max(sent) * 1.01 + 544 * STEPS)
        assert name in ("gd", "noloco") or network.bytes_sent < 0.1 * 8 * DIMENSION * STEPS * RANKS


REAL = cases([("breast_cancer", 20)], [(name, 500) for name in LIBSVM])


def descend(name: str, steps: int, network: Network) -> list[Any]:
    """The points where some methods arrive on a data set."""
    problem = logistic(name, RANKS, 2.5e-4)
    rand_k = RandK(problem.dimension, problem.dimension // 4, dtype=np.float64)
    runs = [kind(problem, network, rand_k, seed=9) for kind in (Diana, VrDianaLsvrg, Ef21, Isega)]
    for _ in range(steps):
        for run in runs:
            run.step()
    return [run.x for run in runs]


def descend_as_rank(name: str, steps: int) -> list[Any]:
    with sparsewire.init() as comm:
        return descend(name, steps, Distributed(comm))


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", REAL)
def test_processes_and_simulation_agree_on_real_data(case: tuple[str, int]) -> None:
    expected = descend(*case, Simulated(RANKS))
    assert all(np.linalg.norm(x) > 0.1 for x in expected)
    for points in run_ranks(RANKS, descend_as_rank, *case, deadline_s=40 + case[1]):
        difference = np.abs(np.array(points) - np.array(expected)).max()
        Check(15, case[0]).at_most("4 processes - 4 simulated workers", difference, 1e-10)


RESUMED = ["diana", "vr-diana saga", "ef14", "marina"]


def run_and_die(directory: str) -> None:
    """Keep a checkpoint of step 6 of each method, and get killed around step 9 of the last."""
    with sparsewire.init() as comm:
        for name in RESUMED:
            run = made(name, Distributed(comm))
            for _ in range(6):
                run.step()
            checkpoint.save(f"{directory}/{name}-{comm.rank}.npz", run.state())
        # Whoever dies first interrupts the others in their steps.
        with suppress(sparsewire.PeerLost):
            for _ in range(3):
                run.step()
        os.kill(os.getpid(), signal.SIGKILL)


def resume(directory: str) -> dict[str, bytes]:
    points = {}
    with sparsewire.init() as comm:
        for name in RESUMED:
            run = made(name, Distributed(comm))
            run.restore(checkpoint.load(f"{directory}/{name}-{comm.rank}.npz"))
            while run.rounds < STEPS:
                run.step()
            points[name] = run.x.tobytes()
    return points


@pytest.mark.exhaustive
def test_killed_ranks_go_on_from_their_states(tmp_path: Path) -> None:
    run_ranks(RANKS, run_and_die, str(tmp_path), dying=range(RANKS))
    resumed = run_ranks(RANKS, resume, str(tmp_path))
    for name in RESUMED:
        whole = made(name, Simulated(RANKS))
        for _ in range(STEPS):
            whole.step()
        same = {points[name] for points in resumed} == {whole.x.tobytes()}
        Check(15, CONSTRUCTED).holds("killed and restored: same bits", same)
