"""Compression operators for parameters: made for their sizes, and shown their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import torch

from sparsewire.compress import (
    BlockTopKRatio,
    Composition,
    CompressError,
    Compressor,
    Contractive,
    KeptComposition,
    Mixture,
    parse,
)

MakeCompressor = Callable[[int], Compressor]

# An operator for so many elements can be made whenever its settings make sense for any parameter.
_LARGE = 2**24


def maker_of(
    compressor: str | MakeCompressor, adapt: Callable[[Compressor], Compressor]
) -> MakeCompressor:
    """What makes operators for any number of elements, changed by `adapt`.

    Raises CompressError for names that `parse` does not know, and what `adapt` raises for them.
    """
    if not isinstance(compressor, str):
        make = compressor
        return lambda dimension: adapt(make(dimension))
    text = compressor
    adapt(parse(text, _LARGE))
    return lambda dimension: adapt(parse(text, dimension))


def operator_for(make: MakeCompressor, parameter: torch.Tensor) -> Compressor:
    """The operator for a parameter's gradient; raises CompressError where it cannot be made."""
    size = parameter.numel()
    try:
        operator = make(size)
    except CompressError as error:
        raise CompressError(f"for a parameter of {size} elements: {error}") from error
    if operator.dimension != size:
        raise CompressError(
            f"for a parameter of {size} elements: the operator takes {operator.dimension}"
        )
    return operator


def show(operator: Compressor, parameter: torch.Tensor) -> None:
    """Tell operators that compare gradients with parameters what these are by now."""
    if isinstance(operator, BlockTopKRatio):
        # Gradients of parameters that are not finite are not finite either.
        with suppress(CompressError):
            operator.follow(parameter)
    for part in _parts(operator):
        show(part, parameter)


def _parts(operator: Compressor) -> Sequence[Compressor]:
    """The operators in it that see vectors as long as the parameter."""
    match operator:
        case Mixture(operators=operators):
            return operators
        case Composition(outer=outer, inner=inner):
            return outer, inner
        case KeptComposition(inner=inner) | Contractive(inner=inner):
            return (inner,)
    return ()
