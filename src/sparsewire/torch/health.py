"""What has gone wrong in a group: for torch's `get_error`, and for its abort hooks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sparsewire.errors import Error, InputError, MismatchError

_logger = logging.getLogger(__name__)

Hook = Callable[[], None]


class Health:
    """The first error that ended a group's communicator, and the hooks to run because of it."""

    def __init__(self) -> None:
        self._noticing = threading.Lock()
        self.hooks: dict[int, Hook] = {}
        """What to run before the group is aborted and at the error that ends it."""
        self.error: Error | None = None

    def notice(self, error: Error) -> None:
        """Run the hooks in this thread, if this is the first error after which nothing goes on."""
        if isinstance(error, MismatchError | InputError):
            return
        with self._noticing:
            is_first = self.error is None
            self.error = self.error or error
        if is_first:
            self.run_hooks()

    def run_hooks(self) -> None:
        """Run every hook. One that raises is logged, so that the others run."""
        for identifier, hook in list(self.hooks.items()):
            try:
                hook()
            except Exception:
                _logger.exception("abort hook %d raised", identifier)
