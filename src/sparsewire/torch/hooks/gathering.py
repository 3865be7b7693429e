"""What all ranks give to each other, on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")
U = TypeVar("U")


class Gathering(Generic[T]):
    """What `read` gives once `work` has ended."""

    def __init__(self, work: dist.Work, read: Callable[[], T]) -> None:
        self.work = work
        self.read = read

    def wait(self) -> T:
        """Block until all of it is here, and return it; raises why it is not."""
        self.work.wait()
        return self.read()

    def then(self, callback: Callable[[T], U]) -> torch.futures.Future[U]:
        """A future of `callback` of it."""

        def arrived(done: torch.futures.Future[Any]) -> U:
            done.value()  # Raises why there is none.
            return callback(self.read())

        future: Any = self.work.get_future()
        return future.then(arrived)  # type: ignore[no-any-return]
