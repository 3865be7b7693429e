"""The base of all methods: a point, a network, a theory, random draws, and a state."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from sparsewire.compress.compressor import Compressor
from sparsewire.compress.draws import Draws
from sparsewire.tools.optimize.methods.network import Network
from sparsewire.tools.optimize.problems.problem import Floats, Integers, Problem


@dataclass(frozen=True)
class Theory:
    """Parameters for which a theorem holds; each method's `theory` names the theorem."""

    gamma: float
    """The step size."""
    rate: float | None = None
    """r, where the theorem's Lyapunov function shrinks by 1 - r per step in expectation."""
    alpha: float = 1.0
    """How far shifts move towards what they track, in (0, 1]."""
    probability: float = 1.0
    """The probability of a step's shared coin."""


Compressors = Compressor | Sequence[Compressor]
"""One for all workers, or one for each; none for a method that chooses its message itself."""


class Method(ABC):
    """One optimisation method over a network.

    Every process makes the same calls. It holds the state of its local workers, and a copy of the
    server's: x and everything else that follows from the messages of all. Sums over workers run
    in the order of the workers, so the bits of x do not depend on the processes that play them.

    A derived class gives its theory, begins what it keeps beside x in `_begin`, and names in
    `saved` the attributes that its state consists of: arrays, numbers, or None. One with parameters
    of its own has a constructor for them.
    """

    saved: ClassVar[tuple[str, ...]] = ()
    proximal: ClassVar[bool] = False
    """Whether the method takes problems with an l1 term."""

    def __init__(
        self,
        problem: Problem,
        network: Network,
        compressors: Compressors,
        *,
        gamma: float | None = None,
        x0: ArrayLike | None = None,
        seed: int = 0,
    ) -> None:
        """Start at `x0` (dimension,), or 0, with steps of `gamma`, or of what theory says.

        Raises ValueError for parts that do not fit, and without `gamma` where there is no theory.
        """
        self.problem, self.network = problem, network
        self._check_problem()
        fitting = _one_each(compressors, network.workers, problem.dimension)
        self.compressors = [self._adapted(compressor) for compressor in fitting]
        self.x: Floats = np.zeros(problem.dimension) if x0 is None else np.array(x0, np.float64)
        if self.x.shape != (problem.dimension,):
            raise ValueError(f"x0 must have shape ({problem.dimension},), not {self.x.shape}")
        self.gradients = 0
        """Component gradients that local workers have computed."""
        self.rounds = 0
        """Steps taken."""
        self._payload_bytes = 0
        self._roundings = [Draws(seed, i, "compressor") for i in network.local]
        self._samples = [Draws(seed, i, "samples") for i in network.local]
        self._coin = Draws(seed, 0, "coin")
        self._local = np.array(network.local)
        self._begin()
        self._use(gamma)

    def step(self) -> None:
        """Take one step, with one round of messages; collective."""
        self._step()
        self.rounds += 1

    @abstractmethod
    def _step(self) -> None: ...

    @abstractmethod
    def theory(self) -> Theory:
        """The parameters for this problem and these compressors; ValueError where none hold."""

    def _begin(self) -> None:  # noqa: B027 - not every method has something of its own
        """Check the compressors, and set what is kept beside x."""

    def _adapted(self, compressor: Compressor) -> Compressor:
        """The operator that sends, from the one that was asked for."""
        return compressor

    @property
    def omega(self) -> float:
        """The largest variance of the workers' compressors; infinite where one is biased."""
        return max(compressor.omega for compressor in self.compressors)

    @property
    def contraction(self) -> float:
        """The smallest a of the workers' compressors."""
        return min(compressor.contraction for compressor in self.compressors)

    @property
    def bits(self) -> float:
        """Bits sent per worker so far: the mean over all n."""
        return 8 * self._payload_bytes / self.network.workers

    def state(self) -> dict[str, Any]:
        """All that later steps depend on: arrays, and what JSON can hold; see `checkpoint`."""
        state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_names()}
        state["method"] = type(self).__name__
        # States that were saved before have this name, too, from when draws were called streams.
        state["streams"] = [draws.state() for draws in self._all_draws()]
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave on this process, with the same arguments otherwise.

        Raises ValueError where the state is of another method, or of another size.
        """
        self._check_state(state)
        for name in self._saved_names():
            setattr(self, name, copy.deepcopy(state[name]))
        all_draws = [Draws.from_state(saved) for saved in state["streams"]]
        local = len(self._local)
        self._roundings, self._samples = all_draws[:local], all_draws[local : 2 * local]
        self._coin = all_draws[2 * local]

    def _use(self, gamma: float | None) -> None:
        """Take `gamma`, where the caller knows better, or the step size of the theory.

        The predicted rate holds for the theory's own parameters only.
        """
        if gamma is not None and not 0 < gamma < np.inf:
            raise ValueError(f"gamma must be positive and finite, not {gamma}")
        predicted = self.theory() if gamma is None else Theory(gamma)
        self.gamma, self.rate = predicted.gamma, predicted.rate

    def _estimates(self) -> Floats:
        """The local workers' estimates of their gradients at x: shape (local, dimension)."""
        return self._gradients(self.x)

    def _gradients(self, x: Floats, batch: int | None = None) -> Floats:
        """The local workers' gradients at x, in full or of so many drawn components."""
        if batch is not None:
            return self._batch_gradients(self._draw(batch), x)
        self.gradients += sum(self.problem.m[i] for i in self.network.local)
        return self.problem.gradients(self.network.local, x)

    def _gradients_at(self, points: Floats, batch: int | None = None) -> Floats:
        """Like `_gradients`, each worker's at a point of its own: `points` (local, dimension)."""
        problem, pairs = self.problem, list(zip(self.network.local, points, strict=True))
        if batch is None:
            self.gradients += sum(problem.m[i] for i in self.network.local)
            return np.concatenate([problem.gradients([i], x) for i, x in pairs])
        js = self._draw(batch)
        self.gradients += js.size
        drawn = zip(pairs, js[:, np.newaxis], strict=True)
        return np.concatenate([problem.batch_gradients([i], own, x) for (i, x), own in drawn])

    def _draw(self, batch: int) -> Integers:
        """Components that the local workers draw, each with replacement: shape (local, batch)."""
        pairs = zip(self.network.local, self._samples, strict=True)
        return np.stack([s.generator.integers(self.problem.m[i], size=batch) for i, s in pairs])

    def _batch_gradients(self, js: Integers, x: Floats) -> Floats:
        """The local workers' mean gradients of components `js` (local, batch) at x."""
        self.gradients += js.size
        return self.problem.batch_gradients(self.network.local, js, x)

    def _send(self, vectors: Floats) -> Floats:
        """Compress and send one vector (local, dimension) for each local worker.

        Returns what arrives, of all workers: shape (workers, dimension). Collective.
        """
        codes, payloads = self._send_codes(vectors)
        received = np.empty((self.network.workers, self.problem.dimension))
        for i, (compressor, payload) in enumerate(zip(self.compressors, payloads, strict=True)):
            own = i in codes
            received[i] = compressor.reconstruct(codes[i]) if own else compressor.decode(payload)
        return received

    def _send_codes(self, vectors: Floats) -> tuple[dict[int, Any], list[bytes]]:
        """Compress and send like `_send`: the codes of the local workers, and all messages.

        A process need not decode its own messages, which would give the same bits.
        """
        codes, messages = {}, []
        for i, vector, draws in zip(self.network.local, vectors, self._roundings, strict=True):
            codes[i] = self.compressors[i].code(vector, draws)
            messages.append(self.compressors[i].pack(codes[i]))
        return codes, self._all_gather(messages)

    def _send_exactly(self, vectors: Floats) -> Floats:
        """Like `_send`, without compression."""
        payloads = self._all_gather([vector.astype("<f8").tobytes() for vector in vectors])
        return np.stack([np.frombuffer(payload, "<f8") for payload in payloads])

    def _all_gather(self, messages: Sequence[bytes]) -> list[bytes]:
        payloads = self.network.all_gather(messages)
        self._payload_bytes += sum(map(len, payloads))
        return payloads

    def _own(self, vectors: Floats) -> Floats:
        """The rows of the local workers, out of those of all."""
        own: Floats = vectors[self._local]
        return own

    def _zeros(self) -> Floats:
        """A vector for each local worker: shape (local, dimension)."""
        return np.zeros((len(self._local), self.problem.dimension))

    def _check_problem(self) -> None:
        problem, network = self.problem, self.network
        if problem.workers != network.workers:
            raise ValueError(
                f"the problem is split among {problem.workers} workers, "
                f"but the network has {network.workers}"
            )
        if problem.l1 and not self.proximal:
            raise ValueError(f"{type(self).__name__} takes no l1 term")

    def _require_unbiased(self) -> None:
        if any(compressor.is_biased for compressor in self.compressors):
            raise ValueError(
                f"{type(self).__name__} needs unbiased compressors: use error feedback for others"
            )

    def _check_state(self, state: dict[str, Any]) -> None:
        names = {*self._saved_names(), "method", "streams"}
        if state.get("method") != type(self).__name__ or state.keys() != names:
            raise ValueError(f"this is no state of {type(self).__name__}")
        for name in self._saved_names():
            old, new = getattr(self, name), state[name]
            if old is not None and new is not None and np.shape(old) != np.shape(new):
                raise ValueError(
                    f"{name} has shape {np.shape(new)} in the state, but {np.shape(old)} here"
                )
        if len(state["streams"]) != len(self._all_draws()):
            raise ValueError("the state is of another number of local workers")

    def _saved_names(self) -> tuple[str, ...]:
        return ("x", "gradients", "rounds", "_payload_bytes", *self.saved)

    def _all_draws(self) -> list[Draws]:
        return [*self._roundings, *self._samples, self._coin]


def _one_each(compressors: Compressors, workers: int, dimension: int) -> list[Compressor]:
    each = [compressors] * workers if isinstance(compressors, Compressor) else list(compressors)
    if each and len(each) != workers:
        raise ValueError(f"{workers} workers cannot have {len(each)} compressors")
    for compressor in each:
        if compressor.dimension != dimension:
            raise ValueError(
                f"a compressor takes {compressor.dimension} elements, "
                f"but the problem has {dimension}"
            )
    return each


class Sampled(Method):
    """A method whose workers draw `batch` of their components per step, with replacement."""

    def __init__(self, *parts: Any, batch: int = 1, **options: Any) -> None:
        """Takes `parts` and `options` as the method does that works on full gradients."""
        self.batch = batch
        super().__init__(*parts, **options)

    def _estimates(self) -> Floats:
        return self._gradients(self.x, self.batch)
