"""What can go wrong in the demo, beyond what the library itself raises."""

from sparsewire.errors import Error


class DemoError(Error):
    """The demo cannot run; the message says what to do."""


class WorkerFailed(DemoError):
    """A worker ended with an error; the message has the end of what it wrote.

    `rank` is the worker's, `status` is its exit status, negative for a signal.
    """

    def __init__(self, rank: int, status: int, log: str) -> None:
        super().__init__(f"worker {rank} ended with status {status}; the end of its log:\n{log}")
        self.rank = rank
        self.status = status
