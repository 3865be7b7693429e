"""What goes wrong in compression: input that no operator can take, settings, malformed messages."""

from __future__ import annotations

from sparsewire.errors import Error


class CompressError(Error, ValueError):
    """A vector, a setting or a message that a compressor cannot use; the text says which."""
