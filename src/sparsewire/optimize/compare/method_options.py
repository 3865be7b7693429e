"""Options of one method, as the user writes them behind its name: diana:momentum=0.9."""

from __future__ import annotations

import inspect
import math
from typing import get_args

from sparsewire.errors import OptimizeError
from sparsewire.optimize.methods.method import Method

Number = int | float

_WORDS = {"gamma": "step", "beta": "momentum"}
"""What users call some parameters; the others keep their names."""
_SHARED = ("x0", "seed")
"""All methods of a comparison start at one point, and draw from one seed."""
_POSITIVE = ("step", "batch", "growth")


def method_options(kind: type[Method]) -> dict[str, inspect.Parameter]:
    """What a method takes besides problem, network and compressor, by the users' words.

    What all methods take comes first, what this one adds last.
    """
    constructors = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)]
    return {
        _WORDS.get(p.name, p.name): p
        for constructor in reversed(constructors)
        for p in inspect.signature(constructor, eval_str=True).parameters.values()
        if p.kind is p.KEYWORD_ONLY and p.name not in _SHARED
    }


def read_options(method: str, kind: type[Method], texts: list[str]) -> dict[str, Number]:
    """Keyword arguments from texts such as "momentum=0.9".

    Raises OptimizeError for what the method does not take, with what it takes; for a value that is
    no number, and for an option that is given twice.
    """
    known, options = method_options(kind), {}
    for text in texts:
        word, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise OptimizeError(
                f"{text!r} is no option of {method}: write {method}:NAME=VALUE, with NAME one of "
                f"{', '.join(known)}; an operator goes behind a slash, like {method}/OPERATOR"
            )
        if word not in known:
            raise OptimizeError(f"{method} has no option {word!r}; it has {', '.join(known)}")
        name = known[word].name
        if name in options:
            raise OptimizeError(f"{method} is given {word} twice")
        options[name] = _number(f"{method}:{word}", value, known[word])
        if word in _POSITIVE and options[name] <= 0:
            raise OptimizeError(f"{method}:{word} must be positive, not {value}")
    return options


def write_options(options: dict[str, Number]) -> str:
    """What `read_options` reads, with a colon before each; nothing where there is none."""
    return "".join(f":{_WORDS.get(name, name)}={value:g}" for name, value in options.items())


def _number(option: str, value: str, parameter: inspect.Parameter) -> Number:
    kinds = get_args(parameter.annotation) or (parameter.annotation,)
    is_whole = int in kinds
    try:
        number = int(value) if is_whole else float(value)
    except ValueError:
        what = "a whole number" if is_whole else "a number"
        raise OptimizeError(f"{option} must be {what}, like {option}=..., not {value!r}") from None
    if not math.isfinite(number):
        raise OptimizeError(f"{option} must be finite, not {value}")
    return number
