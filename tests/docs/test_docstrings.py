"""Every name in the reference says what it is."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def modules() -> list[str]:
    """The modules whose names the reference lists."""
    pages = "\n".join(page.read_text() for page in sorted(REFERENCE.glob("*.md")))
    return re.findall(r"^::: (\S+)$", pages, re.MULTILINE)


def named(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """What a module hands out, and the public methods and properties of its classes."""
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value):
            yield f"{module.__name__}.{name}", value
        if inspect.isclass(value):
            for member in vars(value):
                if not member.startswith("_") and is_described(vars(value)[member]):
                    yield f"{module.__name__}.{name}.{member}", getattr(value, member)


def is_described(member: Any) -> bool:
    """Whether a member of a class has a docstring of its own: data have none."""
    return inspect.isroutine(member) or isinstance(member, property | cached_property)


def test_the_reference_lists_modules() -> None:
    assert {"sparsewire", "sparsewire.torch", "sparsewire.torch.hooks"} <= set(modules())


@pytest.mark.parametrize("name", modules())
def test_nothing_public_is_without_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    assert inspect.getdoc(module)
    found = dict(named(module))
    assert found
    assert not [name for name, value in found.items() if not inspect.getdoc(value)]
