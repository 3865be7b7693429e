"""The methods by name: what each may send, its options, and what it needs to converge."""

from __future__ import annotations

import inspect
import math
from enum import Enum
from typing import Any, NamedTuple, get_args

from rich.table import Table

from sparsewire.errors import OptimizeError
from sparsewire.tools.experiment.report import Column, table
from sparsewire.tools.optimize.methods.blocks import AsynchronousIsgd, Iasgd, Ibcd, Ibgd, Isgd
from sparsewire.tools.optimize.methods.diana import Diana, Isega, VrDianaLsvrg, VrDianaSaga
from sparsewire.tools.optimize.methods.error_feedback import Ef14, Ef21, Ef21Sgdm
from sparsewire.tools.optimize.methods.gradient_descent import Dcgd, Gd, Qsgd
from sparsewire.tools.optimize.methods.isaga import DistributedIsaga, Isaga
from sparsewire.tools.optimize.methods.local_steps import DiLoCo, LocalSgd, SparseLoCo
from sparsewire.tools.optimize.methods.marina import Marina
from sparsewire.tools.optimize.methods.method import Method
from sparsewire.tools.optimize.methods.random_pairs import NoLoCo

Setting = int | float | str
"""The value of an option: a number, or one of a few words."""

_WORDS = {"gamma": "step", "beta": "momentum"}
"""The users' names of some parameters; the others keep their names."""
_SHARED = ("x0", "seed")
"""All methods of a comparison start at one point, and draw from one seed."""
_POSITIVE = ("step", "batch", "growth", "every", "outer")


class Takes(Enum):
    """The compression operators that a method takes."""

    NONE = "none"
    UNBIASED = "unbiased ones"
    ANY = "any"
    BLOCKS = "those that draw blocks: rand-k, block-random-k and bernoulli"


class Needs(Enum):
    """The gradients that must vanish at the solution; else the method stalls at a floor."""

    NOTHING = "nothing"
    WORKERS = "the gradients of the workers"
    COMPONENTS = "the gradients of single rows"


class Entry(NamedTuple):
    """One method."""

    kind: type[Method]
    takes: Takes
    help: str
    needs: Needs = Needs.NOTHING
    operator: str | None = None
    """The operator if the user names none, unless it is that of all methods that take the same."""


METHODS: dict[str, Entry] = {
    "gd": Entry(Gd, Takes.NONE, "gradient descent with whole gradients"),
    "dcgd": Entry(Dcgd, Takes.UNBIASED, "compressed gradients", Needs.WORKERS),
    "qsgd": Entry(Qsgd, Takes.UNBIASED, "compressed stochastic gradients", Needs.COMPONENTS),
    "diana": Entry(Diana, Takes.UNBIASED, "compressed differences of gradients and shifts"),
    "vr-diana": Entry(VrDianaLsvrg, Takes.UNBIASED, "DIANA on stochastic gradients, with L-SVRG"),
    "vr-diana-saga": Entry(VrDianaSaga, Takes.UNBIASED, "DIANA on stochastic gradients, with SAGA"),
    "marina": Entry(Marina, Takes.UNBIASED, "compressed changes of gradients, at times all"),
    "ef14": Entry(Ef14, Takes.ANY, "error feedback: what was lost is sent later", Needs.WORKERS),
    "ef21": Entry(Ef21, Takes.ANY, "error feedback: compressed changes of an estimate"),
    "ef21-sgdm": Entry(
        Ef21Sgdm, Takes.ANY, "EF21 on the momentum of stochastic gradients", Needs.COMPONENTS
    ),
    "ibcd": Entry(Ibcd, Takes.BLOCKS, "random blocks of gradients", Needs.WORKERS),
    "ibgd": Entry(Ibgd, Takes.BLOCKS, "IBCD with a coin per block", Needs.WORKERS),
    "isgd": Entry(Isgd, Takes.BLOCKS, "blocks of stochastic gradients", Needs.COMPONENTS),
    "async-isgd": Entry(
        AsynchronousIsgd,
        Takes.BLOCKS,
        "ISGD with gradients that are a round old, or fresh",
        Needs.COMPONENTS,
    ),
    "iasgd": Entry(Iasgd, Takes.BLOCKS, "IBCD with Nesterov's acceleration", Needs.WORKERS),
    "isega": Entry(Isega, Takes.BLOCKS, "DIANA with random blocks"),
    "isaga": Entry(Isaga, Takes.BLOCKS, "SAGA with random blocks, on data that all share"),
    "isaga-distributed": Entry(
        DistributedIsaga, Takes.BLOCKS, "SAGA with random blocks", Needs.WORKERS
    ),
    "local-sgd": Entry(
        LocalSgd, Takes.ANY, "how far workers came by steps of their own", Needs.WORKERS, "identity"
    ),
    "diloco": Entry(
        DiLoCo, Takes.ANY, "the same, for an outer step with momentum", Needs.WORKERS, "identity"
    ),
    "sparseloco": Entry(
        SparseLoCo,
        Takes.ANY,
        "the largest of it, quantised, with error feedback that decays",
        Needs.WORKERS,
        "rounded:3+top-k:0.1",
    ),
    "noloco": Entry(
        NoLoCo, Takes.NONE, "the same and the point, to a random partner", Needs.WORKERS
    ),
}


def entry(name: str) -> Entry:
    """The method called `name`; raises OptimizeError that lists what there is."""
    if name not in METHODS:
        raise OptimizeError(
            f"there is no method {name!r}; there are sgd, bcd, {', '.join(METHODS)}"
        )
    return METHODS[name]


def method_options(kind: type[Method]) -> dict[str, inspect.Parameter]:
    """A method's options besides problem, network and compressor, by the users' names.

    Options of all methods come first, those of this one last.
    """
    constructors = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)]
    return {
        _WORDS.get(p.name, p.name): p
        for constructor in reversed(constructors)
        for p in inspect.signature(constructor, eval_str=True).parameters.values()
        if p.kind is p.KEYWORD_ONLY and p.name not in _SHARED
    }


def read_options(method: str, kind: type[Method], texts: list[str]) -> dict[str, Setting]:
    """Keyword arguments from texts such as "momentum=0.9".

    Raises OptimizeError for what the method does not take, with what it takes; for a value that is
    no number, or none of the words, and for an option that is given twice.
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
        options[name] = setting = _setting(f"{method}:{word}", value, known[word].annotation)
        if word in _POSITIVE and not isinstance(setting, str) and setting <= 0:
            raise OptimizeError(f"{method}:{word} must be positive, not {value}")
    return options


def write_options(options: dict[str, Setting]) -> str:
    """Options as `read_options` reads them, with a colon before each."""
    return "".join(
        f":{_WORDS.get(name, name)}={value if isinstance(value, str) else format(value, 'g')}"
        for name, value in options.items()
    )


def _setting(option: str, value: str, annotation: Any) -> Setting:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        words = [str(word.value) for word in annotation]
        if value not in words:
            raise OptimizeError(f"{option} must be {' or '.join(words)}, not {value!r}")
        return value
    return _number(option, value, annotation)


def _number(option: str, value: str, annotation: Any) -> int | float:
    is_whole = int in (get_args(annotation) or (annotation,))
    try:
        number = int(value) if is_whole else float(value)
    except ValueError:
        what = "a whole number" if is_whole else "a number"
        raise OptimizeError(f"{option} must be {what}, like {option}=..., not {value!r}") from None
    if not math.isfinite(number):
        raise OptimizeError(f"{option} must be finite, not {value}")
    return number


def methods() -> Table:
    """Every method with its operators and options."""
    column = Column[tuple[str, Entry]]
    columns = (
        column("method", lambda row: row[0], is_text=True),
        column("what is sent", lambda row: row[1].help, is_text=True),
        column("operators", lambda row: row[1].takes.value, is_text=True),
        column("options", lambda row: ", ".join(method_options(row[1].kind)), is_text=True),
    )
    return table(columns, METHODS.items())
