"""The errors that users see, from collectives, meetings and commands. Each says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparsewire._core import Failure
    from sparsewire.call_site import CallSite


class Error(RuntimeError):
    """Base of every error that sparsewire raises about communication."""


class PeerLost(Error):
    """A rank (or, with rank -1, an aggregator) went away during operation `op` number `seq`."""

    def __init__(self, rank: int, op: str, seq: int, message: str | None = None) -> None:
        self.rank = rank
        self.op = op
        self.seq = seq
        who = f"rank {rank}" if rank >= 0 else "an aggregator"
        self.message = message or f"lost {who}, in {op} (operation {seq}). {_after_loss('', rank)}"
        super().__init__(self.message)

    def __reduce__(self) -> tuple[type[PeerLost], tuple[int, str, int, str]]:
        return type(self), (self.rank, self.op, self.seq, self.message)


class Timeout(Error):
    """Something that other ranks had to do did not happen in time."""


class ProtocolError(Error):
    """Bytes arrived that no correct peer of the same version sends."""


class AuthenticationError(Error):
    """A peer could not prove that it belongs to this job."""


class MismatchError(Error):
    """Ranks disagree: on sizes, dtypes or operations of a collective, or on settings."""


class InputError(Error, ValueError):
    """A rank passed unusable input, such as indices out of range; all ranks are told."""


class ResourceError(Error):
    """Memory, descriptors or threads ran out, or a limit on them was reached; the text says which.

    The communicator is broken.
    """


class ExperimentError(Error):
    """An experiment cannot run, or gave a wrong result; the message says what to do."""


class LabError(Error):
    """The lab cannot be set up here; the message says what is missing."""


class WorkerFailed(Error):
    """A worker process ended with an error; the message has the end of its log.

    `rank` is the worker's rank, `status` its exit status, negative for a signal.
    """

    def __init__(self, rank: int, status: int, log: str) -> None:
        super().__init__(f"worker {rank} ended with status {status}; the end of its log:\n{log}")
        self.rank = rank
        self.status = status


class OptimizeError(Error):
    """Data or options cannot be used to minimise a function; the message says what to do."""


class DataError(Error, ValueError):
    """Data cannot be used, whatever the options; the message says what to do."""


class CompressError(Error, ValueError):
    """A compressor cannot use a vector, a setting or a message; the text says which."""


_NAMELESS = "out of memory"
_LEFT_EARLY = "closed its communicator"
_SILENT = "no sign of life"
_GO_ON = "Then restart the job, or have the ranks that are left make a new communicator, or group."
_BY_CODE: dict[str, tuple[type[Error], str]] = {
    "timeout": (Timeout, "Find out what they wait for, or allow a longer timeout with timeout=."),
    "protocol": (ProtocolError, "Do all ranks run the same version of sparsewire?"),
    "mismatch": (MismatchError, "All ranks must make the same calls in the same order."),
    "input": (InputError, "Correct it on that rank; the communicator goes on."),
    "resources": (ResourceError, "Allow for more there, or ask for less."),
    "unreachable": (Timeout, "Once they pass, restart the job, or set SPARSEWIRE_TRANSPORT=tcp."),
    "aborted": (Error, "Restart the job."),
    "closed": (Error, "Make a new one with sparsewire.init()."),
}


def _after_loss(what: str, rank: int) -> str:
    """Advice after a loss; `what` is the text of the loss, and `rank` is lost (-1: aggregator)."""
    if rank < 0:
        return "Start the aggregator again, and then the job."
    if _LEFT_EARLY in what:
        why = "All ranks must make the same number of calls."
    elif _SILENT in what:
        why = "That process was stopped, or its host is dead or cut off."
    else:
        why = "Find out how that process ended: one that was killed left no error in a log."
    return f"{why} {_GO_ON}"


def from_failure(failure: Failure, first_operation: int = 0, site: CallSite | None = None) -> Error:
    """Turn the native module's description of a failure into the exception to raise.

    `first_operation` is the engine's number of the operation that counts as number 0. `site` is
    this rank's call site of the failed operation, if one was noted.
    """
    seq = failure.seq - first_operation
    # If memory ran out, there was none to write the rank into the message.
    is_nameless = failure.message == _NAMELESS and failure.rank >= 0
    who = f"rank {failure.rank}: " if is_nameless else ""
    what = f"{who}{failure.message}, in {failure.op} (operation {seq})."
    if failure.code == "peer_lost":
        return PeerLost(failure.rank, failure.op, seq, f"{what} {_after_loss(what, failure.rank)}")
    if failure.code == "mismatch" and site:
        what += f" This rank called it from site {site.number}: {site.text}."
    kind, advice = _BY_CODE[failure.code]
    return kind(f"{what} {advice}")
