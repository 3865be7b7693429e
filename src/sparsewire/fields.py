"""Reads JSON of another process back into dataclasses, and checks the type of every field."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

T = TypeVar("T")


class FieldError(ValueError):
    """A field is missing, or has a wrong type or value; the text names it."""


def read_fields(kind: Callable[..., T], value: Any, where: str = "") -> T:
    """Build a dataclass, or a TypedDict, from a JSON object; `where` names the object in errors.

    Numbers must be finite and at least 0, and at most 1 if the field's name ends in "density";
    integers have 64 bits at most.
    A dataclass ignores unknown fields, and a TypedDict keeps them. Raises FieldError.
    """
    if not isinstance(value, dict):
        raise FieldError(f"{where or 'it'} is not an object")
    found = {
        name: _read(inner, value[name], f"{where}.{name}" if where else name)
        for name, inner in _kinds(kind).items()
        if name in value
    }
    for name in _required(kind):
        if name not in found:
            raise FieldError(f"{where}.{name} is missing" if where else f"{name} is missing")
    return kind(**({**value, **found} if is_typeddict(kind) else found))


@cache
def _kinds(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _required(kind: Any) -> list[str]:
    if is_typeddict(kind):
        return sorted(kind.__required_keys__)
    return [
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    ]


def _read(kind: Any, value: Any, where: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is UnionType:
        return None if value is None else _read(inner[0], value, where)
    if origin in (list, tuple):
        return origin(_items(inner[0], value, where))
    if origin is dict:
        return _items_by_name(inner[1], value, where)
    if is_dataclass(kind) and type(value) is kind:
        return value  # The caller has read this field already.
    if is_dataclass(kind) or is_typeddict(kind):
        return read_fields(kind, value, where)
    if issubclass(kind, tuple):
        return _named_tuple(kind, value, where)
    return _scalar(kind, value, where)


def _items(kind: Any, value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise FieldError(f"{where} is not a list")
    return [_read(kind, each, f"{where}[{index}]") for index, each in enumerate(value)]


def _items_by_name(kind: Any, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FieldError(f"{where} is not an object")
    return {name: _read(kind, each, f"{where}.{name}") for name, each in value.items()}


def _named_tuple(kind: Any, value: Any, where: str) -> Any:
    items, kinds = _items(Any, value, where), _kinds(kind)
    if len(items) != len(kinds):
        raise FieldError(f"{where} has {len(items)} items and not {len(kinds)}")
    read = zip(kinds.items(), items, strict=True)
    return kind(*(_read(inner, each, f"{where}.{name}") for (name, inner), each in read))


def _scalar(kind: Any, value: Any, where: str) -> Any:
    if type(value) not in ((int, float) if kind is float else (kind,)):
        raise FieldError(f"{where} is {value!r} and not of type {kind.__name__}")
    largest = sys.float_info.max if kind is float else 2**64 - 1
    most = 1 if where.endswith("density") else largest
    if kind in (int, float) and not 0 <= value <= most:
        raise FieldError(f"{where} is {value}, out of range")
    return kind(value)
