"""The typed errors: what they carry, and how failures of the engine become them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from sparsewire import errors


@dataclass
class Failure:
    code: str
    message: str = "what happened"
    rank: int = -1
    op: str = "all_reduce"
    seq: int = 7


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("timeout", errors.Timeout),
        ("protocol", errors.ProtocolError),
        ("mismatch", errors.MismatchError),
        ("resources", errors.ResourceError),
        ("aborted", errors.Error),
        ("closed", errors.Error),
    ],
)
def test_failure_becomes_its_error(code: str, kind: type[errors.Error]) -> None:
    error = errors.from_failure(Failure(code))
    assert type(error) is kind
    assert str(error).startswith("what happened, in all_reduce (operation 7). ")


def test_peer_lost_names_rank_op_and_seq() -> None:
    error = errors.from_failure(Failure("peer_lost", rank=3))
    assert isinstance(error, errors.PeerLost)
    assert (error.rank, error.op, error.seq) == (3, "all_reduce", 7)
    assert str(error).startswith("what happened, in all_reduce (operation 7). ")


@pytest.mark.parametrize(
    ("message", "says"),
    [
        # Killed, as for want of memory, it has written nothing.
        ("lost rank 3: connection reset", "one that was killed left no error in a log"),
        ("lost rank 3: no sign of life for 30.0 s", "stopped, or its host is dead or cut off"),
        ("rank 3 closed its communicator after 5 operations", "make the same number of calls"),
    ],
)
def test_what_to_do_about_a_loss_follows_from_what_is_known(message: str, says: str) -> None:
    told = str(errors.from_failure(Failure("peer_lost", message, rank=3)))
    assert says in told
    assert "its own log has" not in told.lower()
    assert "or have the ranks that are left make a new communicator" in told


def test_a_lost_aggregator_is_to_be_started_again() -> None:
    told = str(errors.from_failure(Failure("peer_lost", "lost aggregator h:1", rank=-1)))
    assert told.endswith("Start the aggregator again, and then the job.")


def test_peer_lost_has_a_message_of_its_own() -> None:
    assert "lost rank 2, in barrier (operation 5)" in str(errors.PeerLost(2, "barrier", 5))
    assert "an aggregator" in str(errors.PeerLost(-1, "barrier", 5))


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(errors.PeerLost(2, "all_reduce", 5, "gone")))
    assert (error.rank, error.op, error.seq, str(error)) == (2, "all_reduce", 5, "gone")


def test_every_error_is_a_runtime_error() -> None:
    for kind in (errors.PeerLost, errors.Timeout, errors.MismatchError, errors.ProtocolError):
        assert issubclass(kind, errors.Error)
    assert issubclass(errors.Error, RuntimeError)


def test_memory_that_ran_out_has_a_rank_though_there_was_none_for_its_name() -> None:
    error = errors.from_failure(Failure("aborted", "out of memory", rank=3))
    assert str(error).startswith("rank 3: out of memory, in all_reduce (operation 7). ")
