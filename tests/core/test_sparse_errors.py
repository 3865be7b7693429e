"""Bad input of one rank to sparse collectives: an InputError on every rank that says whose it was,
and a communicator that goes on."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
from sparse_failing import (
    LENGTH,
    OFFENDER,
    OWNER_ALGORITHMS,
    PEER_ALGORITHMS,
    collectives_of,
    fail_among_others,
    vector,
)
from support import environment_of, run_ranks, serving

import sparsewire
from sparsewire import Communicator, SparseVector, Work


def bad_indices(what: str) -> SparseVector:
    good = vector().indices
    bad = {
        "unsorted": np.r_[good[:5], good[2], good[6:]],
        "unsorted at the end": np.r_[good, good[-2]],
        "duplicate": np.r_[good[:5], good[4:]],
        "negative": np.r_[-1, good],
        "out of range": np.r_[good, LENGTH],
        "far out of range": np.r_[good, 2**40],
    }[what]
    return SparseVector(bad, np.ones(len(bad), np.float32), LENGTH)


BAD_INDICES = {
    "unsorted": r"must ascend.*28 is followed by 14 at position 5",
    "unsorted at the end": r"must ascend.*at position \d+",
    "duplicate": r"must ascend.*28 is followed by 28 at position 5",
    "negative": r"index -1 is out of range for length 100000",
    "out of range": r"index 100000 is out of range for length 100000",
    "far out of range": r"index 1099511627776 is out of range",
}


def pass_bad_indices(algorithms: list[str], who_is_late: str) -> list[tuple[str, Exception]]:
    errors = []
    with sparsewire.init() as comm:
        is_bad = comm.rank == OFFENDER
        for number, what in enumerate(BAD_INDICES):
            algorithm = algorithms[number % len(algorithms)]
            x = bad_indices(what) if is_bad else vector()

            def call(comm: Communicator, x: Any = x, algorithm: str = algorithm) -> Work:
                if is_bad == (who_is_late == "offender"):
                    time.sleep(0.05)
                return comm.all_reduce(x, async_op=True, algorithm=algorithm)

            errors.append((what, fail_among_others(comm, call)))
    return errors


def check_input_errors(results: list[list[tuple[str, Exception]]]) -> None:
    for errors in results:
        for what, error in errors:
            assert isinstance(error, sparsewire.InputError), (what, error)
            assert isinstance(error, ValueError)
            assert re.search(rf"rank {OFFENDER}: .*{BAD_INDICES[what]}", str(error))


@pytest.mark.parametrize("who_is_late", ["offender", "others"])
@pytest.mark.parametrize("algorithms", [["auto", *PEER_ALGORITHMS], OWNER_ALGORITHMS])
def test_bad_indices_are_an_error_on_every_rank(algorithms: list[str], who_is_late: str) -> None:
    check_input_errors(
        run_ranks(
            3, pass_bad_indices, algorithms, who_is_late, environment={"SPARSEWIRE_LANES": "2"}
        )
    )


@pytest.mark.parametrize("who_is_late", ["offender", "others"])
def test_bad_indices_with_dedicated_aggregators(who_is_late: str) -> None:
    with environment_of("dedicated") as environment:
        check_input_errors(
            run_ranks(3, pass_bad_indices, OWNER_ALGORITHMS, who_is_late, environment=environment)
        )


def pass_bad_indices_to_all() -> list[tuple[str, Exception]]:
    with sparsewire.init() as comm:
        x = bad_indices("duplicate") if comm.rank == OFFENDER else vector()
        return [("duplicate", fail_among_others(comm, call)) for call in collectives_of(x).values()]


def test_bad_indices_in_the_other_collectives() -> None:
    check_input_errors(run_ranks(3, pass_bad_indices_to_all))


def pass_bad_indices_twice() -> Exception:
    with sparsewire.init() as comm:
        x = bad_indices("negative") if comm.rank != OFFENDER else vector()
        return fail_among_others(comm, lambda comm: comm.all_reduce(x, async_op=True))


def test_bad_indices_on_two_ranks() -> None:
    for error in run_ranks(3, pass_bad_indices_twice):
        assert isinstance(error, sparsewire.InputError)
        assert re.search("rank [02]: index -1", str(error))


def pass_alone() -> Exception:
    with sparsewire.init(rank=0, world_size=1) as comm:
        x = bad_indices("unsorted")
        return fail_among_others(comm, lambda comm: comm.all_reduce(x, async_op=True))


def test_bad_indices_of_a_single_rank() -> None:
    assert isinstance(pass_alone(), sparsewire.InputError)


def pass_no_numbers(precisions: list[Any], dense: bool) -> list[Exception]:
    errors = []
    with sparsewire.init() as comm:
        for precision in precisions:
            for value in (np.nan, np.inf, -np.inf):
                x = vector()
                x.values[1234] = value if comm.rank == OFFENDER else 1
                given = x.to_dense() if dense else x

                def call(comm: Communicator, given: Any = given, precision: Any = precision) -> Any:
                    return comm.all_reduce(given, async_op=True, precision=precision)

                errors.append(fail_among_others(comm, call))
    return errors


STOCHASTIC = ["int8", "int4", "int2", ("int8", None), ("bfloat16", "int4")]


def check_no_numbers(results: list[list[Exception]]) -> None:
    for errors in results:
        assert len(errors) == 3 * len(STOCHASTIC)
        for error in errors:
            assert isinstance(error, sparsewire.InputError)
            assert re.search(rf"rank {OFFENDER}: values\[1234\] is -?(nan|inf)", str(error)), error


def test_what_is_no_number_cannot_be_quantised() -> None:
    check_no_numbers(run_ranks(3, pass_no_numbers, STOCHASTIC, False))


def test_what_is_no_number_cannot_be_quantised_by_aggregators() -> None:
    with serving() as server:
        environment = {"SPARSEWIRE_AGGREGATORS": str(server.address)}
        check_no_numbers(run_ranks(2, pass_no_numbers, STOCHASTIC, False, environment=environment))


def reduce_infinity(precision: Any) -> float:
    with sparsewire.init() as comm:
        x = np.ones(LENGTH, np.float32)
        x[1234] = np.inf if comm.rank == OFFENDER else 1
        return float(comm.all_reduce(x, precision=precision)[1234])


@pytest.mark.parametrize("precision", ["int8", "bfloat16", "float16"])
def test_infinity_in_a_dense_tensor_stays_one(precision: str) -> None:
    assert run_ranks(3, reduce_infinity, precision) == [np.inf] * 3


def overflow(algorithm: str, precision: Any) -> list[float]:
    """Sums too large for the codec of results must not turn into infinities."""
    with sparsewire.init() as comm:
        x = vector()
        x.values[:] = 6e4
        x = comm.all_reduce(x, algorithm=algorithm, precision=precision, result="dense")
        return [float(x[0]), float(x[7])]


@pytest.mark.parametrize("algorithm", ["stream", *PEER_ALGORITHMS])
def test_what_float16_cannot_hold_is_sent_as_it_is(algorithm: str) -> None:
    float16 = float(np.float16(6e4))
    for values in run_ranks(3, overflow, algorithm, "float16"):
        assert values == pytest.approx([3 * float16] * 2, rel=1e-3)
