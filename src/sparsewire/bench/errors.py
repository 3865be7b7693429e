"""The one error of the benchmark that callers need to tell from others."""

from sparsewire.errors import Error


class BenchError(Error):
    """The benchmark cannot run or gave a wrong result; the message says what to do."""
