"""The outer optimizer: the training loop's side of rounds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from sparsewire.torch.outer import checkpoint
from sparsewire.torch.outer.adding import Adding
from sparsewire.torch.outer.agreement import agreement_of
from sparsewire.torch.outer.fragments import cut, masters_of, trained
from sparsewire.torch.outer.members import Members
from sparsewire.torch.outer.membership.by_group import among_workers, ranks_of
from sparsewire.torch.outer.membership.membership import Membership
from sparsewire.torch.outer.records import Arrivals, Part
from sparsewire.torch.outer.round_thread import RoundThread
from sparsewire.torch.outer.rounds import Average, Offer, Rounds
from sparsewire.torch.outer.schedule import CORRECTED, Schedule, check_ranges
from sparsewire.torch.outer.shared_point import MakeOptimizer, maker_of
from sparsewire.torch.outer.state import FragmentState, ReplicaState
from sparsewire.torch.outer.stats import Counters


class OuterOptimizer:
    """Lets replicas train alone for `every` steps, and then averages how far each has come.

    A replica is one process, or several that share a model by DDP or FSDP2. `process_group` is of
    the processes that have the same part of the model on each replica. `replica_group` is of the
    processes of this replica; with it, they are late, or refuse a round, together. `inner` is the
    optimizer of the training loop, or several of which the last counts: its `step` is counted, and
    at each `every`-th one a round of a fragment takes place, with delta = theta_0 - theta:

        e <- decay e + delta;  send C(e);  e <- e - C(e);  theta_0 <- outer step with the mean sent

    Then training goes on from theta_0. Without a compressor ("dense") nothing is owed. `compressor`
    is as `sparsewire.compress.parse` takes it, made a contraction; `decay` is beta, 0 to 1. All
    vectors are float32. Parameters count as one vector in their order, cut into `fragments` parts
    with rounds in turn, evenly spread over `every` steps.

    `outer` is a torch optimizer, of which class and settings are taken, or a function that makes
    one for a list of parameters. None is Nesterov SGD at .7 with momentum .9 for "dense" (DiLoCo,
    arXiv 2311.08105), else SGD at 1 (SparseLoCo, arXiv 2508.15706).

    `average`: the sum is divided by the "members" that have the shared state, or by the
    "contributors" of the round. With `delay`, a round's sum travels during the next `delay` steps;
    then theta <- mix theta + (1 - mix) theta_0 (Streaming DiLoCo, arXiv 2501.18512), or with
    mix="corrected" theta_0 plus what the `delay` steps have done. `topology` is "all", or "pairs":
    random pairs exchange theta_0 and delta, and replicas stay apart (NoLoCo, arXiv 2506.10911).

    `sums` is how messages are added: "gather", "owned" (owners add, and compress the sum by `down`;
    what that loses is owed, too), or "auto"; see docs/outer.md. `masters` are the float32 masters
    of bf16 parameters, by name or in the order of the parameters; the inner optimizer steps them.

    `membership` knows the replicas; None: the ranks of `process_group`, and those that are left of
    them. `deadline` is how many seconds a round waits for a replica beyond the median time of the
    others' inner steps; None: as much again and at least 5 s, infinite: for ever. A late replica
    keeps its delta for the next round, for at most `patience` rounds; then it starts again from the
    shared point. `timeout` in seconds is for each collective.

    The constructor waits for the other replicas, and gives this replica the shared parameters, of
    rank 0 or of a job that is on its way. Raises ValueError for settings that do not fit,
    CompressError for operators, and `sparsewire.Error` if replicas do not meet.
    """

    def __init__(
        self,
        model: nn.Module,
        inner: Optimizer | Sequence[Optimizer],
        outer: Optimizer | MakeOptimizer | None = None,
        *,
        every: int = 30,
        compressor: str = "dense",
        average: str = "members",
        fragments: int = 1,
        delay: int = 0,
        mix: float | str = 0.0,
        topology: str = "all",
        process_group: dist.ProcessGroup | None = None,
        replica_group: dist.ProcessGroup | None = None,
        decay: float = 1.0,
        sums: str = "auto",
        down: str | None = None,
        strided: bool = False,
        masters: Iterable[Tensor] | Mapping[str, Tensor] | None = None,
        membership: Membership | None = None,
        deadline: float | None = None,
        patience: int = 4,
        timeout: float = 600.0,
        seed: int = 0,
    ) -> None:
        self.schedule = Schedule(every, fragments, delay)
        check_ranges(mix, decay, patience, deadline)
        self.inner = [inner] if isinstance(inner, Optimizer) else list(inner)
        """The optimizers of the training loop; the last one's steps are counted."""
        if not self.inner:
            raise ValueError("there is no inner optimizer: pass that of the training loop")
        averaged = Average(average)
        self._mix = mix
        self._patience = patience
        self._counters = Counters()
        adding = Adding(compressor, topology, sums, down, seed)
        parameters = trained(model)
        make = maker_of(outer, not adding.is_dense)
        cuts = cut(parameters, fragments, masters_of(parameters, masters), strided)
        beta = None if adding.is_dense else decay
        self._state = ReplicaState([FragmentState(each, make, beta) for each in cuts])
        workers = None if replica_group is None else among_workers(replica_group, timeout)
        agreement = agreement_of(self._state, adding, averaged)
        members = Members(
            membership or ranks_of(process_group), timeout, self._counters, agreement, workers
        )

        def rounds(enter: Any) -> Rounds:
            return Rounds(self._state, adding, members, averaged, self._counters, enter)

        self._thread = RoundThread(self._state, rounds, members, deadline)
        self._flight: Flight | None = None
        self._begun = time.monotonic()
        self.steps = 0
        """Inner steps that were counted."""
        self._last = -1
        """The number of steps before the last round that was waited for."""
        self._join()
        self._hook = self.inner[-1].register_step_post_hook(lambda *_: self._stepped())

    def _join(self) -> None:
        try:
            self._thread.joined.wait()
        except BaseException:  # Such as KeyboardInterrupt: nobody else could close it.
            self._thread.stop()
            raise
        if self._thread.error is not None:
            raise self._thread.error
        with self._state.lock:
            for each in self._state.fragments:
                each.restart()

    def _stepped(self) -> None:
        """The inner optimizer has taken a step."""
        self.steps += 1
        flight = self._flight
        if flight is not None and self.steps >= flight.lands:
            self._land()
        if not self.schedule.is_due(self.steps):
            return
        if self.schedule.delay:
            self._take_off()
        else:
            self._take_part(Part.CONTRIBUTES)

    def _take_part(self, part: Part) -> None:
        """Wait for one round with this replica's delta, and go on from where it leads."""
        begun = time.monotonic()
        # Who leaves gives what it owes, even if its delta was given up.
        while not self._is_given_up() or part is not Part.CONTRIBUTES:
            offer = self._offer(part)
            if self._awaited(offer) is not None:
                with self._state.lock:
                    self._state.due(offer.number).restart()
                break
        self._last = self.steps
        self._rest(begun)

    def _awaited(self, offer: Offer) -> Arrivals | None:
        """The end of an offer's round. If the wait is interrupted, it lands after the next step."""
        self._fly(offer, self.steps)
        try:
            arrived = offer.outcome.result()
        except Exception:
            self._flight = None
            raise
        self._flight = None
        return arrived

    def _is_given_up(self) -> bool:
        """If this replica has missed too many rounds, give up its delta."""
        with self._state.lock:
            if self._state.missed <= self._patience:
                return False
            for each in self._state.fragments:
                each.restart()
            self._state.missed = 0
            self._counters.discarded += 1
        return True

    def _take_off(self) -> None:
        """Begin a round whose sum travels during the next inner steps."""
        self._fly(self._offer(Part.CONTRIBUTES), self.steps + self.schedule.delay)
        self._begun = time.monotonic()

    def _fly(self, offer: Offer, lands: int) -> None:
        """An offer's round is on its way, and training may go on from where the parameters are."""
        fragment = self._state.due(offer.number).fragment
        left = fragment.read(fragment.empty()) if self._mix == CORRECTED else None
        self._flight = Flight(offer, lands, left)

    def _land(self) -> None:
        """Wait for the sum that was on its way, and merge where it leads."""
        flight, self._flight = self._flight, None
        if flight is None:
            return
        begun = time.monotonic()
        arrived = flight.offer.outcome.result()
        self._counters.seconds_waited += time.monotonic() - begun
        if arrived is None and self._is_given_up():
            return
        with self._state.lock:
            state = self._state.due(flight.offer.number)
            if arrived is not None:
                state.merge(self._mix, flight.left)

    def _offer(self, part: Part) -> Offer:
        """Bring this replica's delta to the next round."""
        with self._state.lock:
            number = self._state.rounds
            vector, moved, size = self._state.due(number).turned()
        worked = time.monotonic() - self._begun
        return self._thread.offer(Offer(number, part, vector, moved, size, worked))

    def _rest(self, begun: float) -> None:
        """A round has ended, and inner steps begin."""
        self._begun = time.monotonic()
        self._counters.seconds_waited += self._begun - begun

    def sync(self) -> None:
        """Have a round of each fragment now; a collective call of all replicas.

        Afterwards the parameters of all replicas are equal, unless `topology` is "pairs". If there
        is one fragment, and its last round was after the last inner step, nothing is done. Raises
        CompressError, on all replicas, if one cannot contribute, and the errors of the engine.
        """
        self._land()
        if len(self._state.fragments) == 1 and self._last == self.steps:
            return
        for _ in self._state.fragments:
            self._take_part(Part.CONTRIBUTES)

    def restart(self) -> None:
        """Set this replica's parameters to the shared point, and forget its delta; not collective.

        For a replica whose training has diverged. What is on its way already counts.
        """
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.offer.outcome.exception()
        with self._state.lock:
            for each in self._state.fragments:
                each.restart()

    def leave(self, flush: bool = True) -> None:
        """Leave the job in order, at the next round of each fragment, while others go on.

        With `flush`, all that this replica owes goes into these rounds, as it is; without, the
        others count it as lost. Then the outer optimizer is closed.
        """
        self._land()
        last = len(self._state.fragments) - 1
        for number in range(last + 1):
            part = Part.LEAVES if number == last else Part.FLUSHES
            self._take_part(part if flush else Part.CONTRIBUTES)
        self.close()

    def stats(self) -> dict[str, Any]:
        """Counts since the start, as `sparsewire.torch.outer.stats.Counters` names them.

        `bytes_up` and `bytes_down` are this replica's frames on the wire, in bytes; `delta_norm`,
        `residual_norm` and `drift` are of the last round; `seconds_waited` is how long the training
        loop stood still.
        """
        return {**self._counters.as_dict(), "steps": self.steps, "phase": self._thread.phase.value}

    def state_dict(self) -> dict[str, Any]:
        """The shared state by the parameters' names, and what this replica owes, for `torch.save`.

        A checkpoint also needs the model's and the inner optimizer's own states. Call it between
        rounds with nothing in flight: it waits for a sum that is on its way.
        """
        self._land()
        members = self._thread.place
        with self._state.lock:
            return checkpoint.saved(self._state, self.steps, *members)

    def load_state_dict(self, saved: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Take over the state of this replica, or the list of the states of all replicas.

        A list may come from another number of replicas: what they owed is dealt out so that the
        mean stays the same. All replicas load states of one round, before the next one. The
        parameters stay as they are: load the model's own state as well, or call `restart`. Raises
        ValueError if the states are of another model, or of different rounds.
        """
        self._land()
        rank, size = self._thread.place
        with self._state.lock:
            self.steps = checkpoint.load(self._state, saved, rank, size)

    @property
    def rounds(self) -> int:
        """How many rounds have been committed."""
        return self._state.rounds

    def close(self) -> None:
        """End after the round in flight, and leave the other replicas. Idempotent."""
        self._hook.remove()
        self._thread.close()

    def __enter__(self) -> OuterOptimizer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is None:
            self._land()
        self.close()


class Flight(NamedTuple):
    """A round whose sum travels until step `lands`; `left` are the parameters it left behind."""

    offer: Offer
    lands: int
    left: Tensor | None
