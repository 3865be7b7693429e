"""The answer: for every link and method the predicted step, with a range; and what it comes to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from sparsewire.errors import InputError
from sparsewire.profile.records.recorded import Recorded
from sparsewire.tools.advise.prediction.lean import leaned
from sparsewire.tools.advise.prediction.methods import Method, methods
from sparsewire.tools.advise.prediction.network import Network
from sparsewire.tools.advise.prediction.parameters import Seen, seen_parameters
from sparsewire.tools.advise.prediction.replay import step_s
from sparsewire.tools.advise.prediction.shared import recorded_crowd
from sparsewire.tools.advise.prediction.tables import with_sparse_tables
from sparsewire.tools.advise.prediction.timeline import Timeline, timeline_of
from sparsewire.tools.advise.prediction.transfers import Transfer

PAYS = 1.05
"""Below this speed-up there is no difference that a prediction can tell."""

LOSS_PAYS = 1.2
"""A lossy method is named if it is so many times as fast as the best lossless one."""

MORE_HOSTS = (8, 16)
"""Numbers of hosts that each row is told for, too."""

_UNSURE_GROWTH = 0.15
"""The uncertainty of how unions grow with the number of ranks."""

_SLOWEST, _FASTEST = 1e7, 1e11
_POINTS = 51


@dataclass(frozen=True)
class Row:
    """One method on one link; `bytes` leave each host in a step.

    `more_hosts` has the step among other numbers of hosts.
    """

    method: Method
    step_s: float
    low_s: float
    high_s: float
    bytes: float
    speedup: float
    more_hosts: dict[int, float] = field(default_factory=dict)


class Gain(Enum):
    """The verdicts of comparing two rows' ranges, the best first; programs read the values."""

    pays = "pays"
    may_pay = "may pay"
    alike = "no difference"
    loses = "does not pay"


def gain(ours: Row, theirs: Row) -> Gain:
    """Whether a row is faster than another: for certain only where their ranges lie apart."""
    ratio = theirs.step_s / ours.step_s
    if ratio >= PAYS:
        return Gain.pays if ours.high_s < theirs.low_s else Gain.may_pay
    return Gain.alike if ratio > 1 / PAYS else Gain.loses


@dataclass(frozen=True)
class OnLink:
    """All methods on one link, the plain one first."""

    link_bits_s: float
    rows: list[Row]

    @property
    def plain(self) -> Row:
        return self.rows[0]

    @property
    def fastest(self) -> Row:
        """The fastest row by prediction; of equal rows the plainest."""
        return min(self.rows, key=lambda row: row.step_s)

    @property
    def lossless(self) -> Row:
        """The plainest lossless row that is about as fast as the fastest lossless one."""
        return _plainest([row for row in self.rows if row.method.is_lossless])

    @property
    def without(self) -> Row:
        """The best that needs no sparsewire: what sparsewire has to beat."""
        return _plainest([row for row in self.rows if not row.method.needs_sparsewire])

    @property
    def ours(self) -> Row:
        """The best of sparsewire's that loses nothing."""
        rows = [row for row in self.rows if row.method.is_lossless]
        return _plainest([row for row in rows if row.method.needs_sparsewire])

    @property
    def gain(self) -> Gain:
        """The gain of sparsewire without loss over every row that needs no sparsewire."""
        found = [gain(self.ours, row) for row in self.rows if not row.method.needs_sparsewire]
        return max(found, key=[*Gain].index)

    @property
    def lossy(self) -> Row | None:
        """The fastest of those that lose something, where it is faster for certain, and by far."""
        best = min((r for r in self.rows if not r.method.is_lossless), key=lambda row: row.step_s)
        exact = [row for row in self.rows if row.method.is_lossless]
        is_apart = all(gain(best, row) is Gain.pays for row in exact)
        return best if is_apart and self.lossless.step_s >= LOSS_PAYS * best.step_s else None


def _plainest(rows: Sequence[Row]) -> Row:
    least_s = min(row.step_s for row in rows)
    return next(row for row in rows if row.step_s <= PAYS * least_s)


@dataclass(frozen=True)
class Curve:
    """Speed-ups of a method over links of `bits_s`; from `break_even` on it does not pay.

    None where it pays on the fastest of them, 0 where it does on none.
    """

    method: Method
    bits_s: list[float]
    speedups: list[float]
    break_even: float | None


class Model:
    """Predicts steps of a recorded training; raises InputError as `timeline_of` does."""

    def __init__(self, recorded: Recorded, network: Network) -> None:
        first = recorded.ranks[0]
        self.recorded = recorded
        self.network = replace(network, on_device="nccl" in first.backend)
        self.parameters = seen_parameters(recorded)
        self.tables: list[Seen] = [seen for seen in self.parameters if seen.looks_like_table]
        was_sparse = any(seen.is_sparse for seen in self.parameters)
        self.methods = methods(first.backend, has_tables=bool(self.tables), was_sparse=was_sparse)
        self.computing = self._computing()
        """How many times as long as recorded it takes to compute."""
        dense = timeline_of(recorded)
        lean = timeline_of(leaned(recorded, self.tables)) if self.tables else dense
        split = with_sparse_tables(lean, self.tables, recorded)
        self.timeline = dense.changed(self.computing, 0.0)
        self._split = split.changed(self.computing, self._update_s(split) * self.network.crowd)
        self._unsure = _unsure_of_growth(len(recorded.ranks), self.network.all_ranks)

    def _computing(self) -> float:
        """The factor of computing: ranks for a processor now and then. GPUs are not shared so."""
        crowd = recorded_crowd(self.recorded)
        return 1.0 if crowd is None or self.network.on_device else self.network.crowd / crowd

    def _update_s(self, split: Timeline) -> float:
        """Seconds of optimizers for the rows of the union, which were not recorded."""
        parts = [part for part in split.gradients if part.row_costs is not None]
        ranks = self.network.all_ranks
        costs = [p.row_costs.update.of(p.rows(ranks)) for p in parts if p.row_costs]
        return sum(costs) if self.tables else 0.0

    @property
    def computed_s(self) -> float:
        """The median step if nothing had to be sent: no network makes it shorter."""
        return statistics.median(each.end for each in self.timeline.passes)

    def timeline_for(self, method: Method) -> Timeline:
        """The recorded timeline, with sparse tables where the method has them."""
        return self._split if method.splits else self.timeline

    def transfers(self, method: Method, link_bits_s: float, grown: float = 0.0) -> list[Transfer]:
        """The transfer of each bucket on a link; unions grow by `grown` more than recorded."""
        network = replace(self.network, link_bits_s=link_bits_s)
        gradients = self.timeline_for(method).gradients
        return [method.way(gradient.grown(grown), network) for gradient in gradients]

    def median_s(self, method: Method, link_bits_s: float) -> float:
        """The median step on a link."""
        return statistics.median(self._steps(method, self.transfers(method, link_bits_s)))

    def on_link(self, link_bits_s: float) -> OnLink:
        """All methods on a link."""
        plain_s = self.median_s(self.methods[0], link_bits_s)
        return OnLink(link_bits_s, [self._row(m, link_bits_s, plain_s) for m in self.methods])

    def with_hosts(self, hosts: int) -> Model:
        """The same training on another number of hosts."""
        return Model(self.recorded, replace(self.network, hosts=hosts))

    def curve(self, method: Method) -> Curve:
        """The speed-up of a method from 10 Mbit/s to 100 Gbit/s."""
        ratio = _FASTEST / _SLOWEST
        links = [_SLOWEST * ratio ** (at / (_POINTS - 1)) for at in range(_POINTS)]
        speedups = [self.speedup(method, link) for link in links]
        return Curve(method, links, speedups, self._break_even(method, links, speedups))

    def speedup(self, method: Method, link_bits_s: float) -> float:
        """Over the plain one."""
        return self.median_s(self.methods[0], link_bits_s) / self.median_s(method, link_bits_s)

    def _break_even(
        self, method: Method, links: Sequence[float], speedups: Sequence[float]
    ) -> float | None:
        paying = [at for at, speedup in enumerate(speedups) if speedup >= PAYS]
        if not paying:
            return 0.0
        if paying[-1] == len(links) - 1:
            return None
        low, high = links[paying[-1]], links[paying[-1] + 1]
        while high / low > 1.01:
            middle = math.sqrt(low * high)
            pays = self.speedup(method, middle) >= PAYS
            low, high = (middle, high) if pays else (low, middle)
        return low

    def _steps(
        self, method: Method, transfers: Sequence[Transfer], computing: float = 1.0
    ) -> list[float]:
        passes = self.timeline_for(method).changed(computing, 0.0).passes
        return [step_s(each, transfers) for each in passes]

    def _row(self, method: Method, link_bits_s: float, plain_s: float) -> Row:
        transfers = self.transfers(method, link_bits_s)
        median = statistics.median(self._steps(method, transfers))
        low, high = (
            self._bound(method, link_bits_s, sign, share) for sign, share in ((-1, 0.1), (1, 0.9))
        )
        sent = sum(transfer.bytes for transfer in transfers)
        return Row(method, median, min(low, median), max(high, median), sent, plain_s / median)

    def _bound(self, method: Method, link_bits_s: float, sign: int, share: float) -> float:
        """A step that is short or long for its kind, whose transfers are as well."""
        unsure = method.unsure
        found = self.transfers(method, link_bits_s, sign * self._unsure)
        transfers = [transfer.scaled(1 + sign * unsure.sending) for transfer in found]
        return _quantile(self._steps(method, transfers, 1 + sign * unsure.computing), share)


def _unsure_of_growth(recorded_ranks: int, asked_ranks: int) -> float:
    if recorded_ranks == asked_ranks:
        return 0.0
    return 1.0 if recorded_ranks == 1 else _UNSURE_GROWTH


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[round(share * (len(values) - 1))]


@dataclass(frozen=True)
class Answer:
    """The answer about a training: the model, the links that were asked for, and the curves."""

    recorded: Recorded
    model: Model
    links: list[OnLink]
    curves: list[Curve]


def answer(recorded: Recorded, network: Network, links_bits_s: Sequence[float]) -> Answer:
    """Predict for every link; that of `network` does not matter.

    Raises InputError where the profile does not say enough.
    """
    if not links_bits_s:
        raise InputError("no link is known: give one with --link, such as --link 10gbit")
    model = Model(recorded, network)
    others = [model.with_hosts(hosts) for hosts in MORE_HOSTS if hosts != network.hosts]
    links = [_with_more_hosts(model.on_link(link), others) for link in links_bits_s]
    return Answer(recorded, model, links, [model.curve(method) for method in model.methods[1:]])


def _with_more_hosts(found: OnLink, others: Sequence[Model]) -> OnLink:
    """The link's rows, each with its step among other numbers of hosts."""

    def told(row: Row) -> dict[int, float]:
        return {
            other.network.hosts: other.median_s(row.method, found.link_bits_s) for other in others
        }

    return replace(found, rows=[replace(row, more_hosts=told(row)) for row in found.rows])
