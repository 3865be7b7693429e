"""A tap at embedding tables: when a backward pass makes their gradients, and hands them over.

That is what `sparse=True` saves of a backward pass, so `sparsewire advise` has to know it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from sparsewire.profile.records.clock import Moment
from sparsewire.profile.taps.sink import Sink


class TableTap:
    """`numbers` are those of parameters, by their identities.

    A graph that torch compiles runs no hooks of modules inside: of such tables nothing is seen.
    """

    def __init__(self, model: nn.Module, numbers: dict[int, int], sink: Sink) -> None:
        self._tables = dict(_lookups(model, numbers))
        self._sink = sink
        self._since: dict[int, Moment] = {}
        self._handles: list[Any] = []
        self._nodes: list[Any] = []

    def install(self) -> None:
        untraced: Any = torch.compiler.disable
        for module, number in self._tables.items():
            hook = untraced(
                lambda module, inputs, output, number=number: self._seen(number, output)
            )
            self._handles.append(module.register_forward_hook(hook))
        for number, weight in {n: m.weight for m, n in self._tables.items()}.items():
            assert isinstance(weight, torch.Tensor)
            node = _accumulator(weight)
            self._nodes.append(node)
            # This hook runs behind DDP's own, which copies into the bucket.
            self._handles.append(node.register_hook(lambda *_, number=number: self._ended(number)))

    def _seen(self, number: int, output: Any) -> None:
        """Follow the node that will make the gradient of what was looked up."""
        with self._sink.guarded():
            node = getattr(output, "grad_fn", None)
            if node is not None and node.name().startswith("Embedding"):
                node.register_prehook(lambda *_: self._began(number))
                node.register_hook(lambda *_: self._went_on(number))

    def _began(self, number: int) -> None:
        with self._sink.guarded():
            self._since[number] = self._sink.now()

    def _went_on(self, number: int) -> None:
        """A lookup's part has ended; what comes until the next, or the bucket, is the table's."""
        with self._sink.guarded():
            if number in self._since:
                self._sink.passed(number, self._since[number])
                self._since[number] = self._sink.now()

    def _ended(self, number: int) -> None:
        with self._sink.guarded():
            if number in self._since:
                self._sink.passed(number, self._since.pop(number))

    def begin(self) -> None:
        self._since = {}

    def end(self) -> None:
        """Tables have been noted as they came."""

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._nodes.clear()
        self._tables = {}


def table_classes(model: nn.Module) -> dict[int, str]:
    """Classes that look up rows and take `sparse=True`, by the identity of the weight."""
    found: dict[int, str] = {}
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and _takes_sparse(module):
            kind = nn.EmbeddingBag if isinstance(module, nn.EmbeddingBag) else nn.Embedding
            found[id(module.weight)] = kind.__name__
    return found


def _takes_sparse(module: nn.Embedding | nn.EmbeddingBag) -> bool:
    # torch refuses both with sparse gradients.
    return not module.scale_grad_by_freq and getattr(module, "mode", "sum") != "max"


def _lookups(model: nn.Module, numbers: dict[int, int]) -> Iterator[tuple[nn.Module, int]]:
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and id(module.weight) in numbers:
            yield module, numbers[id(module.weight)]


def _accumulator(weight: torch.Tensor) -> Any:
    """The node that adds to a parameter's gradient; it is the same for as long as it is held."""
    with torch.enable_grad():
        node: Any = weight.expand_as(weight).grad_fn
    return node.next_functions[0][0]
