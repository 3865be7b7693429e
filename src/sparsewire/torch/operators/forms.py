"""Finds the form of an operator on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparsewire.compress import (
    QSGD,
    Bernoulli,
    BlockRandomK,
    BlockThreshold,
    BlockTopK,
    Centroids,
    Composition,
    Compressor,
    Dithering,
    Fp4,
    Identity,
    KeptComposition,
    Natural,
    NaturalDithering,
    RandK,
    Rounded,
    Sign,
    SpanTopK,
    Ternary,
    Threshold,
    TopK,
    Unscaled,
)
from sparsewire.compress.compressor import Contractive
from sparsewire.torch.operators.centroids import TensorCentroids
from sparsewire.torch.operators.composed import (
    TensorComposition,
    TensorContractive,
    TensorKeptComposition,
)
from sparsewire.torch.operators.kept import (
    TensorSeeded,
    TensorSpanTopK,
    TensorSparsifier,
    TensorThreshold,
    TensorTopK,
)
from sparsewire.torch.operators.levels import (
    TensorDithering,
    TensorFp4,
    TensorNaturalDithering,
    TensorRounded,
    TensorSign,
)
from sparsewire.torch.operators.norms import has_norms, has_sums
from sparsewire.torch.operators.powers import TensorNatural
from sparsewire.torch.operators.tensor_operator import TensorOperator, WholeVector

Form = TensorOperator[Any]


def tensor_form(operator: Compressor) -> Form | None:
    """The form of an operator on tensors of any device; None if there is none.

    The exact class counts; subclasses have no form, since a user's subclass may do anything.
    """
    if operator.dtype != np.float32:
        return None
    if type(operator) in _COMPOSED:
        return _COMPOSED[type(operator)](operator)
    form = _SINGLE.get(type(operator))
    return form(operator) if form is not None and _has_sizes(operator) else None


def _has_sizes(operator: Any) -> bool:
    """Whether tensors can have the norms or means that the operator needs."""
    if isinstance(operator, Dithering | NaturalDithering):
        return has_norms(operator.blocks, operator.power)
    if isinstance(operator, TopK | Threshold):
        return operator.blocks.size == 1 or has_sums(operator.blocks)
    return not isinstance(operator, Sign) or has_sums(operator.blocks)


def _contractive(operator: Contractive) -> Form | None:
    inner = tensor_form(operator.inner)
    return None if inner is None else TensorContractive(operator, inner)


def _composition(operator: Composition) -> Form | None:
    outer, inner = tensor_form(operator.outer), tensor_form(operator.inner)
    return None if outer is None or inner is None else TensorComposition(operator, outer, inner)


def _kept_composition(operator: KeptComposition) -> Form | None:
    outer, inner = tensor_form(operator.outer), tensor_form(operator.inner)
    if outer is None or not isinstance(inner, TensorSparsifier):
        return None
    return TensorKeptComposition(operator, outer, inner)


_SINGLE: dict[type[Compressor], Callable[[Any], Form]] = {
    Identity: WholeVector,
    TopK: TensorTopK,
    BlockTopK: TensorTopK,
    SpanTopK: TensorSpanTopK,
    Threshold: TensorThreshold,
    BlockThreshold: TensorThreshold,
    RandK: TensorSeeded,
    BlockRandomK: TensorSeeded,
    Bernoulli: TensorSeeded,
    Unscaled: TensorSeeded,
    Rounded: TensorRounded,
    Sign: TensorSign,
    Centroids: TensorCentroids,
    Fp4: TensorFp4,
    Natural: TensorNatural,
    Dithering: TensorDithering,
    QSGD: TensorDithering,
    Ternary: TensorDithering,
    NaturalDithering: TensorNaturalDithering,
}
_COMPOSED: dict[type[Compressor], Callable[[Any], Form | None]] = {
    Contractive: _contractive,
    Composition: _composition,
    KeptComposition: _kept_composition,
}
