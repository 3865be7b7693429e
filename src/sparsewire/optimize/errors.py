"""What can go wrong in an optimisation, beyond what the library itself raises."""

from sparsewire.errors import Error


class OptimizeError(Error):
    """The data or the options cannot be used; the message says what to do."""
