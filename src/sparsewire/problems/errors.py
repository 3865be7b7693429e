"""What can go wrong with the data of a problem."""

from sparsewire.errors import Error


class DataError(Error, ValueError):
    """The data cannot be used; the message says what to do."""
