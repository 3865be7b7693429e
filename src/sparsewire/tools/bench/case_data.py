"""One case's data on one rank: its input, and the result that it must have, by NumPy alone."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sparsewire import SparseVector
from sparsewire.tools.bench.fixed_point import FixedPointSum, fixed_point_sum
from sparsewire.tools.bench.job import Case, Job
from sparsewire.tools.bench.patterns import Array, Contribution, Pattern, contribute, numpy_dtype
from sparsewire.tools.bench.traced import replay

# A sum that names this share of the elements is smaller as a dense array.
_DENSE_RESULT = 1 / 3

_ELEMENTWISE = {"min": np.minimum, "max": np.maximum, "product": np.multiply}

# A backend that adds in another order, or in half precision, differs by this much per rank.
_TOLERANCES = {"float64": 1e-13, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}

# Levels of the quantised precisions: a value moves by less than one of them, of the largest.
_LEVELS = {"int8": 127, "int4": 7, "int2": 1}

# The benchmark's values are at most this large.
_LARGEST = 0.5


@dataclass(frozen=True)
class CaseData:
    """The input of backends. If the job's input is sparse, `vector` holds the same as `dense`."""

    dense: Array
    expected: Array
    vector: SparseVector | None
    into_dense: bool
    """Whether a sparse vector's result goes into a dense array, which is used again and again."""
    in_fixed_point: FixedPointSum | None = None
    """How far sums may be off where the job asks for these; `expected` is the exact sum then."""
    named: list[int] = field(default_factory=list)
    """Positions that the vector of each rank names, once they have told each other."""


def prepare(job: Job, case: Case, rank: int, groups: list[range]) -> CaseData:
    """Make the data; every rank makes all ranks' data itself.

    `groups` are of ranks that are added up before others.
    """
    ranks = groups[-1].stop
    dtype = numpy_dtype(job.dtype)

    def part(of: int) -> Contribution:
        if job.trace is not None:
            return replay(job.trace, case.pattern, dtype, job.seed, of)
        pattern = Pattern.parse(case.pattern)
        return contribute(pattern, case.elements, case.density, dtype, job.seed, of)

    dense = part(rank).dense().reshape(-1)[: case.elements]
    in_fixed_point = None
    if job.in_fixed_point:
        in_fixed_point = fixed_point_sum(map(part, range(ranks)), case.elements, job.op, ranks)
        expected = in_fixed_point.rounded
    else:
        expected = _expected(part, groups, case.elements, job.op)
    vector = SparseVector.from_dense(dense) if job.input == "sparse" else None
    # The density of a sum, where the ranks' positions are independent.
    joined = 1 - (1 - case.density) ** ranks
    into_dense = job.result == "dense" or (job.result == "auto" and joined >= _DENSE_RESULT)
    return CaseData(dense, expected, vector, into_dense, in_fixed_point)


def _expected(
    part: Callable[[int], Contribution], groups: list[range], elements: int, op: str
) -> Array:
    ranks = groups[-1].stop
    if len(groups) == ranks:
        return reduce_in_rank_order(map(part, range(ranks)), elements, op, ranks)
    of_groups = (
        reduce_in_rank_order(map(part, group), elements, "sum" if op == "avg" else op, 1)
        for group in groups
    )
    shares = (Contribution(slice(None), share.reshape(-1, 1), elements) for share in of_groups)
    return reduce_in_rank_order(shares, elements, op, ranks)


def reduce_in_rank_order(
    contributions: Iterator[Contribution], elements: int, op: str, ranks: int
) -> Array:
    """Combine the contributions of ranks 0, 1, ... into a vector of shape (elements,).

    Half-width types accumulate in float32 and are rounded once, as the engine does.
    """
    first = next(contributions)
    dtype = first.values.dtype
    wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    total = first.dense().astype(wide, copy=False)
    for part in contributions:
        if op in _ELEMENTWISE:
            other = part.dense().astype(wide, copy=False)
            _ELEMENTWISE[op](total, other, out=total)
        else:
            total[part.units] += part.values.astype(wide, copy=False)
    if op == "avg":
        total /= wide.type(ranks)
    return total.astype(dtype, copy=False).reshape(-1)[:elements]


def first_difference(
    result: Array, expected: Array, *, exact: bool, ranks: int, precision: str | None = None
) -> int | None:
    """Index of the first wrong element, or None.

    `exact` compares bits, else a tolerance holds: of the dtype, and of the `precision` on the wire.
    """
    if exact or result.dtype.name not in _TOLERANCES:
        bits = f"u{result.itemsize}"
        wrong = result.view(bits) != expected.view(bits)
    else:
        wrong = _are_apart(result, expected, ranks, precision)
    return int(wrong.argmax()) if wrong.any() else None


def _are_apart(
    result: Array, expected: Array, ranks: int, precision: str | None
) -> npt.NDArray[np.bool_]:
    # The difference of half-width values is taken in float32, where it is exact enough.
    wide = np.promote_types(result.dtype, np.float32) if result.itemsize > 2 else np.float32
    found, wanted = result.astype(wide, copy=False), expected.astype(wide)
    names = [result.dtype.name, *(precision.split(",") if precision else [])]
    tolerance = max(_TOLERANCES.get(name, 0.0) for name in names) * ranks
    bound = max(_rounding_bound(name, ranks) for name in names)
    wrong = ~np.isclose(found, wanted, tolerance, max(tolerance, bound))
    if bound and not _is_unbiased(found - wanted, wanted, bound):
        wrong[np.abs(found - wanted).argmax()] = True
    return np.asarray(wrong, np.bool_)


def _rounding_bound(name: str, ranks: int) -> float:
    """A bound of the errors of rounding to levels: partial sums are rounded again on their way."""
    if name not in _LEVELS:
        return 0.0
    rounds = max(ranks / 2, 1 + math.log2(ranks))
    return ranks * rounds * _LARGEST / _LEVELS[name]


def _is_unbiased(error: Array, expected: Array, bound: float) -> bool:
    """Whether errors within a bound are without a bias along the result, by six deviations.

    Few levels allow errors as large as the values, so that the bound alone would forgive anything.
    """
    wide = expected.astype(np.float64)
    return abs(float(error @ wide)) <= 6 * bound * float(np.linalg.norm(wide))
