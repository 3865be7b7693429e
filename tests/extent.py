"""Which tests `make test` runs, and which it leaves to `make test-all`.

A test marked `exhaustive` is left out. Of one marked `matrix`, so few cases are run that each value
of each parameter comes up. Of one that hypothesis feeds, 25 examples are run, and 100 by `make
test-all`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import pytest
from hypothesis import is_hypothesis_test

EXTENTS = ["all", "quick", "rest"]


def chosen(items: list[pytest.Item], extent: str) -> list[pytest.Item]:
    """The tests of that extent, in their order; quick and rest together are all."""
    if extent == "all":
        return items
    quick = set(quick_ones(items))
    if extent == "quick":
        return [item for item in items if item in quick]
    return [item for item in items if item not in quick or draws_examples(item)]


def draws_examples(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)


def quick_ones(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    candidates = [item for item in items if not item.get_closest_marker("exhaustive")]
    for _, group in groupby(candidates, key=lambda item: item.nodeid.partition("[")[0]):
        cases = list(group)
        yield from covering(cases) if cases[0].get_closest_marker("matrix") else cases


def covering(cases: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Cases with every value of every parameter, those first that bring the most new ones."""
    left = set().union(*map(values, cases))
    while left:
        best = max(cases, key=lambda case: len(values(case) & left))
        left -= values(best)
        yield best


def values(case: pytest.Item) -> set[tuple[str, str]]:
    """The parameters of a case, each with its value."""
    assert isinstance(case, pytest.Function)
    return {(name, repr(value)) for name, value in case.callspec.params.items()}
