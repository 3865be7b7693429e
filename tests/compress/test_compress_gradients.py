"""Operators on the gradients of real data: what they lose, and how long their messages are."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from acceptance import LIBSVM, Check, cases
from compress_cases import (
    BIASED,
    DRAWS,
    UNBIASED,
    Vector,
    bits_of,
    check_losses,
    check_size,
    entropy_bits,
    measure,
    subset_bits,
)

from sparsewire.compress import Compressor, Draws, InCosines, LowRank, parse
from sparsewire.compress.composition import Composition, KeptComposition, Mixture
from sparsewire.compress.dithering import NormScaled
from sparsewire.compress.levels import Levels, PowerScaled, SignedLevels
from sparsewire.compress.natural import Natural
from sparsewire.compress.seeded import SeededSparsifier
from sparsewire.compress.sparsifier import Sparsifier

pytest.importorskip("sklearn")
WORKERS = 20
DATA = cases([("digits",)], [(name,) for name in LIBSVM])


@cache
def gradients(name: str) -> Vector:
    """Of the workers at 0, shape (WORKERS, dimension)."""
    from data_sets import logistic

    problem = logistic(name, WORKERS, 1e-3)
    return problem.gradients(range(WORKERS), np.zeros(problem.dimension))


@pytest.mark.parametrize("case", DATA)
@pytest.mark.parametrize("operator", UNBIASED)
def test_mean_is_kept_and_variance_is_bounded(operator: str, case: tuple[str]) -> None:
    gradient = gradients(*case)[0]
    compressor = parse(operator, gradient.size, np.float64)
    check_losses(*case, compressor, measure(compressor, gradient, DRAWS // 4))


@pytest.mark.parametrize("case", DATA)
@pytest.mark.parametrize("operator", UNBIASED + BIASED)
def test_messages_are_exact_and_short(operator: str, case: tuple[str]) -> None:
    """Of all workers' gradients in one vector, long enough to have an entropy."""
    x = gradients(*case).ravel().astype(np.float32)
    compressor = parse(operator, x.size)
    payload = compressor.encode(x, Draws(3))
    exact = bits_of(compressor.decode(payload)) == bits_of(compressor.compress(x, Draws(3)))
    Check(3, *case).holds("decode(encode) is the operator, bit for bit", exact)
    check_size(*case, payload, *entropy(compressor, compressor.draw(x, Draws(3))))


def entropy(compressor: Compressor, code: Any) -> tuple[float, int]:
    """Bits of a code under the frequencies of its own symbols, and how many symbols these are."""
    match compressor:
        case Mixture():
            return entropy(compressor.operators[code.number], code.code)
        case KeptComposition():
            bits, symbols = entropy(compressor.outer, code.values)
            return bits + choice_bits(compressor.inner, code.choice), symbols
        case Composition():
            return entropy(compressor.outer, code)
        case Sparsifier():
            return choice_bits(compressor, code.choice) + value_bits(code.values), 0
        case NormScaled() | SignedLevels():
            assert isinstance(code, Levels)
            symbols = int(code.symbols.max()) + 1
            return value_bits(code.scales) + entropy_bits(code.symbols), symbols
        case InCosines():
            return entropy(compressor.inner, code)
        case PowerScaled():
            exponents = np.frexp(code.scales)[1]
            symbols = int(code.symbols.max()) + int(exponents.max() - exponents.min()) + 2
            return entropy_bits(exponents) + entropy_bits(code.symbols), symbols
        case Natural():
            used = code.symbols[code.symbols > 0] // 2
            symbols = 1 + 2 * int(used.max() - used.min() + 1)
            return entropy_bits(code.symbols), symbols
        case LowRank():
            return value_bits(code.left) + value_bits(code.right), 0
        case _:
            return value_bits(code), 0


def value_bits(values: Vector) -> float:
    return 8 * values.nbytes


def choice_bits(sparsifier: Sparsifier, choice: Any) -> float:
    """Of a seed none: it is part of the header."""
    seeded = isinstance(sparsifier, SeededSparsifier)
    return 0 if seeded else subset_bits(len(choice.blocks), sparsifier.blocks.count)
