"""What can go wrong in the demo, beyond what the library itself raises."""

from sparsewire.errors import Error


class DemoError(Error):
    """The demo cannot run; the message says what to do."""
