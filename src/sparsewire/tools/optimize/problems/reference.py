"""The solution of a convex problem, as exact as float64 allows: what methods are measured by."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve as solve_linear

from sparsewire.tools.optimize.problems.linear_model import LinearModel
from sparsewire.tools.optimize.problems.problem import Floats

GRADIENT_NORM = 1e-15
"""A solution with a gradient below this norm counts as exact."""
_NEWTON_STEPS = 100
_PROX_STEPS = 1_000_000


def solve(problem: LinearModel) -> Floats:
    """The minimiser of F: by Newton's method, or with an l1 term by proximal gradient steps.

    Raises ValueError where f is not strongly convex, RuntimeError where rounding keeps it from the
    exactness that `newton` and `proximal_gradient` promise.
    """
    if problem.mu <= 0:
        raise ValueError("the problem must be strongly convex: add an l2 term")
    return proximal_gradient(problem) if problem.l1 else newton(problem)


def newton(problem: LinearModel) -> Floats:
    """Newton's method with halved steps, to a gradient norm of GRADIENT_NORM.

    Where rounding stops it earlier, a norm below 100 times that is accepted.
    """
    x = np.zeros(problem.dimension)
    gradient = problem.full_gradient(x)
    for _ in range(_NEWTON_STEPS):
        if np.linalg.norm(gradient) <= GRADIENT_NORM:
            break
        direction = solve_linear(problem.hessian(x), gradient, assume_a="pos")
        better = _best_step(problem, x, gradient, direction)
        if better is None:
            break
        x, gradient = better
    _check_exact("the gradient", float(np.linalg.norm(gradient)))
    return x


def _best_step(
    problem: LinearModel, x: Floats, gradient: Floats, direction: Floats
) -> tuple[Floats, Floats] | None:
    """The first of the halved steps that shortens the gradient: the point, and its gradient."""
    # The norm of the gradient is a merit function for a Newton direction, and unlike the loss it
    # still tells points apart close to the solution.
    for halvings in range(30):
        trial = x - direction / 2**halvings
        trial_gradient = problem.full_gradient(trial)
        if np.linalg.norm(trial_gradient) < np.linalg.norm(gradient):
            return trial, trial_gradient
    return None


def proximal_gradient(problem: LinearModel) -> Floats:
    """Accelerated proximal gradient steps, restarted where they turn back, until they stand still.

    A Newton step among the non-zeros then takes away what rounding errors have added up to.
    B. O'Donoghue and E. Candes, "Adaptive restart for accelerated gradient schemes" (Foundations of
    Computational Mathematics, 2015).
    """
    gamma = 1 / problem.L
    x: Floats = np.zeros(problem.dimension)
    ahead = x
    momentum, length = 1.0, np.inf
    for _ in range(_PROX_STEPS):
        following = problem.prox(ahead - gamma * problem.full_gradient(ahead), gamma)
        change = following - x
        length = float(np.linalg.norm(following - ahead)) / gamma
        if length <= GRADIENT_NORM or not change.any():
            break
        if (ahead - following) @ change > 0:
            # The step overshot: start again from here, without momentum.
            momentum, ahead = 1.0, following
        else:
            grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = following + (momentum - 1) / grown * change
            momentum = grown
        x = following
    _check_exact("the proximal gradient", length)
    return _polished(problem, x)


def _polished(problem: LinearModel, x: Floats) -> Floats:
    """x after a Newton step on F among its non-zeros, where F is smooth."""
    support = np.flatnonzero(x)
    if not len(support):
        return x
    gradient = problem.full_gradient(x)[support] + problem.l1 * np.sign(x[support])
    hessian = problem.hessian(x)[np.ix_(support, support)]
    polished: Floats = x.copy()
    polished[support] -= solve_linear(hessian, gradient, assume_a="pos")
    return polished


def _check_exact(what: str, norm: float) -> None:
    if norm > 100 * GRADIENT_NORM:
        raise RuntimeError(f"{what} has the norm {norm:.2g}: the problem is too badly conditioned")
