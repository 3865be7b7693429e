"""A tap at optimizers: which of them steps which parameters, and how long it takes."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from torch.optim import optimizer as hooks

from sparsewire.profile.records.clock import Moment
from sparsewire.profile.records.recorded import Optimizer
from sparsewire.profile.taps.sink import Sink


class OptimizerTap:
    """`numbers` are those of the model's parameters, by their identities.

    Optimizers that step none of them are not seen.
    """

    def __init__(self, numbers: dict[int, int], sink: Sink) -> None:
        self._numbers, self._sink = numbers, sink
        self._known: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()
        self._since: Moment | None = None
        self._handles: list[Any] = []

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers that have stepped parameters of the model."""
        steps = self._known.items()
        return [Optimizer(type(each).__name__, numbers) for each, numbers in steps if numbers]

    def install(self) -> None:
        before: Any = hooks.register_optimizer_step_pre_hook
        behind: Any = hooks.register_optimizer_step_post_hook
        self._handles = [before(self._begins), behind(self._ends)]

    def _begins(self, optimizer: Any, *_: Any) -> None:
        with self._sink.guarded():
            if optimizer not in self._known:
                self._known[optimizer] = self._stepped(optimizer)
            self._since = self._sink.now() if self._known[optimizer] else None

    def _stepped(self, optimizer: Any) -> list[int]:
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        return sorted(self._numbers[id(each)] for each in parameters if id(each) in self._numbers)

    def _ends(self, *_: Any) -> None:
        with self._sink.guarded():
            if self._since is not None:
                self._sink.updated(self._since)
                self._since = None

    def begin(self) -> None:
        self._since = None

    def end(self) -> None:
        """Optimizers step behind the backward pass."""

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
