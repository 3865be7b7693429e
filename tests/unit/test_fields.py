"""What other processes wrote is read with types and limits, or refused by the name of the field."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire.fields import FieldError, read_fields


class Pair(NamedTuple):
    name: str
    count: int


class Extra(TypedDict):
    count: int


@dataclass(frozen=True)
class Inner:
    share_density: float = 0.0


@dataclass(frozen=True)
class Whole:
    count: int
    seconds: float
    name: str | None
    is_on: bool
    pair: Pair
    counts: dict[str, int]
    inners: tuple[Inner, ...]
    any: list[Any] = field(default_factory=list)


WHOLE = Whole(1, 2.5, None, True, Pair("a", 3), {"b": 4}, (Inner(0.5), Inner()), ["x", 1])


def document(**changes: Any) -> Any:
    return {**json.loads(json.dumps(asdict(WHOLE))), **changes}


def test_every_kind_of_field_comes_back() -> None:
    assert read_fields(Whole, document(later=1)) == WHOLE
    assert read_fields(Whole, document(inners=[Inner(0.5), {}], seconds=2)).inners == WHOLE.inners
    assert read_fields(Extra, {"count": 1, "more": "x"}) == {"count": 1, "more": "x"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"count": True}, "count is True and not of type int"),
        ({"count": -1}, "count is -1, out of range"),
        ({"count": 2**64}, "count is 18446744073709551616, out of range"),
        ({"count": 1.0}, "count is 1.0 and not of type int"),
        ({"seconds": "1"}, "seconds is '1' and not of type float"),
        ({"seconds": float("nan")}, "seconds is nan, out of range"),
        ({"seconds": float("inf")}, "seconds is inf, out of range"),
        ({"seconds": 10**400}, "out of range"),
        ({"name": 3}, "name is 3 and not of type str"),
        ({"pair": ["a"]}, "pair has 1 items and not 2"),
        ({"pair": ["a", "b"]}, "pair.count is 'b' and not of type int"),
        ({"counts": []}, "counts is not an object"),
        ({"counts": {"b": None}}, "counts.b is None and not of type int"),
        ({"inners": {}}, "inners is not a list"),
        ({"inners": [{}, {"share_density": 2}]}, r"inners\[1\].share_density is 2, out of range"),
        ({"inners": [3]}, r"inners\[0\] is not an object"),
    ],
)
def test_wrong_field_is_named(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(FieldError, match=text):
        read_fields(Whole, document(**changes))


def test_missing_field_is_named() -> None:
    with pytest.raises(FieldError, match="count is missing"):
        read_fields(Whole, {"seconds": 1.0})
    with pytest.raises(FieldError, match=r"it\.count is missing"):
        read_fields(Extra, {}, "it")


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=8))
def test_any_value_is_read_or_refused(value: Any) -> None:
    for name in document():
        with contextlib.suppress(FieldError):
            read_fields(Whole, document(**{name: value}))
