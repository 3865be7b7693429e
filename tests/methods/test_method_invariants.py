"""What holds in every step, and what methods refuse."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from acceptance import CONSTRUCTED, LIBSVM, Check, cases
from counted import CountedSimulated
from data_sets import logistic

from sparsewire.compress.compressor import Compressor, Identity
from sparsewire.compress.dithering import Ternary
from sparsewire.compress.largest import TopK
from sparsewire.compress.seeded import RandK
from sparsewire.tools.optimize.methods import checkpoint
from sparsewire.tools.optimize.methods.diana import Diana, VrDianaLsvrg, VrDianaSaga
from sparsewire.tools.optimize.methods.error_feedback import Ef14, Ef21, Ef21Sgdm
from sparsewire.tools.optimize.methods.gradient_descent import Dcgd, Gd, Qsgd
from sparsewire.tools.optimize.methods.local_steps import DiLoCo, SparseLoCo
from sparsewire.tools.optimize.methods.marina import Marina
from sparsewire.tools.optimize.methods.method import Method
from sparsewire.tools.optimize.methods.network import Simulated
from sparsewire.tools.optimize.methods.random_pairs import NoLoCo
from sparsewire.tools.optimize.problems.examples import from_arrays
from sparsewire.tools.optimize.problems.losses import LeastSquares, Logistic

N, L2 = 4, 0.01
DATA = cases([("breast_cancer", 20)], [(name, None) for name in LIBSVM])
COMPRESSED = [Dcgd, Qsgd, Diana, VrDianaLsvrg, VrDianaSaga, Ef14, Ef21, Ef21Sgdm, Marina]
LOCAL = partial(
    SparseLoCo, gamma=0.3, every=3, delay=4, mix=0.5, momentum=0.5, participation=0.7, batch=2
)
CORRECTED = partial(DiLoCo, gamma=0.3, every=3, delay=2, merge="corrected")


def problem(name: str = "breast_cancer", rows: int | None = 20) -> Logistic:
    return logistic(name, N, L2, rows=rows)


def rand_k(dimension: int = 30) -> Compressor:
    return RandK(dimension, dimension // 5, dtype=np.float64)


def made(method: Callable[..., Method], **options: object) -> Method:
    if method in (Gd, NoLoCo):
        return method(problem(), Simulated(N), **options)
    return method(problem(), Simulated(N), rand_k(), **options)


class Recorded(Simulated):
    """Keeps the messages of the last round."""

    def all_gather(self, messages: list[bytes]) -> list[bytes]:
        self.messages = messages
        return super().all_gather(messages)


@pytest.mark.parametrize("case", DATA)
@pytest.mark.parametrize("method", [Diana, VrDianaLsvrg, VrDianaSaga])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_server_keeps_the_mean_of_the_shifts(
    method: type[Diana], beta: float, case: tuple[str, int | None]
) -> None:
    function, errors = problem(*case), []
    run = method(function, Simulated(N), rand_k(function.dimension), beta=beta)
    for _ in range(200):
        run.step()
        errors.append(np.abs(run.mean_h - run.h.mean(axis=0)).max())
    Check(4, case[0]).at_most("server's shift - mean of the workers'", max(errors), 1e-12)
    assert np.abs(run.h).max() > 1e-3


@pytest.mark.parametrize("method", [Ef21, Ef21Sgdm])
def test_server_keeps_the_mean_of_the_estimates(method: type[Ef21]) -> None:
    run = method(problem(), Simulated(N), TopK(30, 3, dtype=np.float64))
    for _ in range(200):
        run.step()
        assert np.abs(run.mean_g - run.g.mean(axis=0)).max() < 1e-12


def test_references_of_both_variants_are_true() -> None:
    saga, lsvrg = made(VrDianaSaga, batch=3), made(VrDianaLsvrg, batch=3)
    assert isinstance(saga, VrDianaSaga)
    assert isinstance(lsvrg, VrDianaLsvrg)
    points = []
    for _ in range(100):
        points.append(lsvrg.x)
        saga.step()
        lsvrg.step()
        tables = saga.table.reshape(N, 20, -1)
        assert np.allclose(saga.mean_reference, tables.mean(axis=1), atol=1e-14)
        assert np.allclose(lsvrg.mean_reference, problem().gradients(range(N), lsvrg.w))
        # Where a step began, never where it ended.
        assert any(lsvrg.w is point for point in points)
    assert lsvrg.w is not points[0]


@pytest.mark.parametrize("case", DATA)
def test_without_compression_the_methods_are_gradient_descent(
    case: tuple[str, int | None],
) -> None:
    function = problem(*case)
    exact = Identity(function.dimension, np.float64)
    gamma = Gd(function, Simulated(N)).gamma
    runs: list[Method] = [
        Gd(function, Simulated(N)),
        Dcgd(function, Simulated(N), exact, gamma=gamma),
        Diana(function, Simulated(N), exact, gamma=gamma, alpha=1.0),
        Marina(function, Simulated(N), exact, gamma=gamma),
        Ef14(function, Simulated(N), exact, gamma=gamma),
        Ef21(function, Simulated(N), exact, gamma=gamma),
    ]
    x, error = np.zeros(function.dimension), 0.0
    for _ in range(300):
        x = x - gamma * function.full_gradient(x)
        for run in runs:
            run.step()
            error = max(error, np.abs(run.x - x).max())
    Check(4, case[0]).at_most("identity operator - gradient descent", error, 1e-12)
    assert np.linalg.norm(x) > 1


@pytest.mark.parametrize("method", [Dcgd, Diana, Ef21])
@pytest.mark.parametrize("compressor", [rand_k(), Ternary(30, dtype=np.float64)])
def test_workers_draw_differently(method: type[Diana], compressor: Compressor) -> None:
    row = np.random.default_rng(1).normal(size=30)
    alike = LeastSquares(from_arrays(np.tile(row, (N, 1)), np.ones(N)), np.arange(N)[:, None])
    network = Recorded(N)
    run = method(alike, network, compressor)
    seen = []
    for _ in range(3):
        run.step()
        seen.extend(network.messages)
    Check(4, CONSTRUCTED).holds("workers draw differently", len(set(seen)) == 3 * N)


def test_seeds_repeat_and_differ() -> None:
    runs = [made(VrDianaSaga, seed=seed) for seed in (1, 1, 2)]
    for run in runs:
        for _ in range(20):
            run.step()
    assert runs[0].x.tobytes() == runs[1].x.tobytes()
    assert runs[0].x.tobytes() != runs[2].x.tobytes()


@pytest.mark.parametrize("method", [Gd, *COMPRESSED, LOCAL, CORRECTED, NoLoCo])
@pytest.mark.parametrize("steps", [0, 7])
def test_state_goes_on_with_the_same_bits(
    method: Callable[..., Method], steps: int, tmp_path: Path
) -> None:
    run, restored = made(method, seed=5), made(method, seed=6)
    for _ in range(steps):
        run.step()
    restored.step()
    checkpoint.save(tmp_path / "state.npz", run.state())
    restored.restore(checkpoint.load(tmp_path / "state.npz"))
    for _ in range(30):
        run.step()
        restored.step()
    assert restored.x.tobytes() == run.x.tobytes()
    counters = (run.rounds, run.gradients, run.bits)
    assert (restored.rounds, restored.gradients, restored.bits) == counters
    assert counters[0] == steps + 30


def test_state_is_a_copy() -> None:
    run, other = made(VrDianaSaga), made(VrDianaSaga)
    run.step()
    state = run.state()
    run.step()
    other.restore(state)
    other.step()
    assert other.x.tobytes() == run.x.tobytes()


def test_states_of_others_are_refused() -> None:
    state = made(Diana).state()
    with pytest.raises(ValueError, match="no state of Ef21"):
        made(Ef21).restore(state)
    with pytest.raises(ValueError, match="shape"):
        made(Diana).restore({**state, "h": state["h"][:2]})
    with pytest.raises(ValueError, match="local workers"):
        made(Diana).restore({**state, "streams": state["streams"][1:]})


def test_costs_are_counted() -> None:
    run = made(Gd)
    for _ in range(3):
        run.step()
    assert (run.rounds, run.gradients, run.bits) == (3, 3 * N * 20, 3 * 30 * 64)
    network = CountedSimulated(N)
    stochastic = Qsgd(problem(), network, rand_k(), batch=2)
    for _ in range(3):
        stochastic.step()
    assert stochastic.gradients == 3 * N * 2
    assert stochastic.bits == 8 * network.bytes_sent / N


def test_arguments_are_checked() -> None:
    network, biased = Simulated(N), TopK(30, 3)
    for method in (Dcgd, Qsgd, Diana, VrDianaSaga, Marina):
        with pytest.raises(ValueError, match="unbiased"):
            method(problem(), network, biased)
    with pytest.raises(ValueError, match="network has 3"):
        Diana(problem(), Simulated(3), rand_k())
    with pytest.raises(ValueError, match="cannot have 2 compressors"):
        Diana(problem(), network, [rand_k()] * 2)
    with pytest.raises(ValueError, match="takes 31 elements"):
        Diana(problem(), network, RandK(31, 6))
    with pytest.raises(ValueError, match="x0"):
        Gd(problem(), network, x0=np.zeros(3))
    with pytest.raises(ValueError, match="gamma"):
        made(Diana, gamma=-1.0)
    with pytest.raises(ValueError, match="beta"):
        made(Diana, beta=1.0)
    with pytest.raises(ValueError, match="momentum"):
        Diana(logistic("breast_cancer", N, L2, l1=0.1), network, rand_k(), beta=0.5)
    with pytest.raises(ValueError, match="eta"):
        made(Ef21Sgdm, eta=0.0)
    with pytest.raises(ValueError, match="probability"):
        made(Marina, probability=0.0)
    with pytest.raises(ValueError, match="takes no l1"):
        Ef21(logistic("breast_cancer", N, L2, l1=0.1), network, biased)
