"""Reads dataclasses back from JSON: every field must have its type; unknown ones are ignored."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


class FieldError(ValueError):
    """A field that is missing, or is not what it should be; the text says which."""


def read_fields(kind: type[T], value: Any, where: str = "") -> T:
    """Build the dataclass from a JSON object; `where` names it in errors.

    Numbers must be finite and at least 0, and at most 1 where the field's name ends in "density".
    """
    if not isinstance(value, dict):
        raise FieldError(f"{where or 'it'} is not an object")
    kinds = get_type_hints(kind)
    found = {}
    for field in fields(kind):  # type: ignore[arg-type]
        name = f"{where}.{field.name}" if where else field.name
        if field.name in value:
            found[field.name] = _read(kinds[field.name], value[field.name], name)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise FieldError(f"{name} is missing")
    return kind(**found)


def _read(kind: Any, value: Any, where: str) -> Any:
    if get_origin(kind) is UnionType:
        return None if value is None else _read(get_args(kind)[0], value, where)
    if get_origin(kind) is list:
        if not isinstance(value, list):
            raise FieldError(f"{where} is not a list")
        (inner,) = get_args(kind)
        return [_read(inner, each, f"{where}[{place}]") for place, each in enumerate(value)]
    if is_dataclass(kind):
        return read_fields(kind, value, where)  # type: ignore[arg-type]
    return _scalar(kind, value, where)


def _scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise FieldError(f"{where} is {value!r} and not of type {kind.__name__}")
    most = 1 if where.endswith("density") else math.inf
    if kind in (int, float) and not (math.isfinite(value) and 0 <= value <= most):
        raise FieldError(f"{where} is {value}, out of range")
    return value
