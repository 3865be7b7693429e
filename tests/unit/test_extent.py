"""What `make test` leaves to `make test-all`: nothing but combinations and long tests."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import pytest
from hypothesis import given
from hypothesis.strategies import integers

@pytest.mark.parametrize("size", [0, 1, 2])
@pytest.mark.parametrize("kind", ["a", "b"])
@pytest.mark.matrix
def test_matrix(size, kind): ...

@pytest.mark.parametrize("count", [1, pytest.param(9, marks=pytest.mark.exhaustive)])
def test_counted(count): ...

def test_plain(): ...

@given(integers())
def test_drawn(number): ...
"""
MARKERS = "[pytest]\nmarkers =\n    matrix\n    exhaustive\n"
CONFTEST = Path(__file__).parents[1] / "conftest.py"


def names(pytester: pytest.Pytester, extent: str) -> list[str]:
    result = pytester.runpytest("--collect-only", "-q", "--extent", extent)
    return [line.partition("::")[2] for line in result.outlines if "::" in line]


def test_every_value_comes_up_and_nothing_is_lost(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    pytester.makeini(MARKERS)
    pytester.makeconftest(CONFTEST.read_text())
    everything, quick, rest = (names(pytester, extent) for extent in ("all", "quick", "rest"))
    assert set(quick) & set(rest) == {"test_drawn"}
    assert sorted(set(quick + rest)) == sorted(everything)
    assert {"test_plain", "test_counted[1]"} <= set(quick)
    assert "test_counted[9]" in rest
    cases = [name[12:-1].split("-") for name in quick if name.startswith("test_matrix")]
    assert len(cases) == 3
    assert {size for _, size in cases} == {"0", "1", "2"}
    assert {kind for kind, _ in cases} == {"a", "b"}
