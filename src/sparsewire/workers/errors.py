"""What can go wrong with a worker process, beyond what the library itself raises."""

from sparsewire.errors import Error


class WorkerFailed(Error):
    """A worker ended with an error; the message has the end of what it wrote.

    `rank` is the worker's, `status` is its exit status, negative for a signal.
    """

    def __init__(self, rank: int, status: int, log: str) -> None:
        super().__init__(f"worker {rank} ended with status {status}; the end of its log:\n{log}")
        self.rank = rank
        self.status = status
