"""One training, which every rank reads from JSON: the task, and the averaging of gradients.

Each task makes, on every rank, a model with its data and optimiser. Gradients are averaged in full,
or by one of the compressing hooks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sparsewire.compress import Compressor, parse

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from sparsewire.tools.training.digits import DigitsTrainee
    from sparsewire.tools.training.lstm import LstmTrainee

    Trainee = DigitsTrainee | LstmTrainee

# Together 1% of all blocks of these networks. The matrices of LSTM and convolutions are small, but
# their gradients have no zeros: a training with 1% of these, too, lags behind.
_HOOKS = {
    "feedback": "block-top-k:0.0065:8/block-top-k:0.1:8",
    "diana": "qsgd:7:256/qsgd:7:128",
}
_IN_WORDS = {"feedback": "error feedback", "diana": "DIANA"}
_BACKENDS = ("gloo", "sparsewire")
_ANY_BACKEND = f"{', '.join(_BACKENDS)} or another backend that this torch has"
_SMALL = 2**17
_LARGE = 2**24
# Gradients of small batches are mostly noise. Shifts that follow slowly average it.
_ALPHA = 0.1


@dataclass(frozen=True)
class Trial:
    """`averaging` says how gradients are averaged, in words that `Averaging.parse` takes."""

    task: str
    averaging: str
    steps: int
    seed: int
    schedule_steps: int | None = None
    """The length of the whole training, of which `steps` are run; None: rates do not change."""
    warmup: int = 0
    """The first steps, in which compressing hooks send everything."""
    evaluations: int = 10
    """How often the held-out loss is taken, beside the end."""
    alone_steps: int = 0
    """Steps without communication behind the others, to tell what that takes."""
    width: int = 128
    """Width of the language model,"""
    tokens: str = ""
    """whose text is in this file."""
    interface: str | None = None
    """The network interface that only this rank uses, if any."""


class Task(NamedTuple):
    """A task: what it trains, for how many steps, and how it is made."""

    title: str
    steps: int
    make: Callable[[Trial], Trainee]


def _language(trial: Trial) -> Trainee:
    import numpy as np

    from sparsewire.tools.training.lstm import LstmTrainee

    return LstmTrainee(np.load(trial.tokens), trial.seed, trial.width)


def _digits(trial: Trial) -> Trainee:
    from sparsewire.tools.training.digits import DigitsTrainee

    return DigitsTrainee(trial.seed)


TASKS = {
    "lstm": Task("LSTM language model", 1200, _language),
    "digits": Task("convolutional network on digits", 6000, _digits),
}


class Averaging(NamedTuple):
    """A backend that averages gradients in full, or a hook on sparsewire with its operators.

    The second operator, if any, is that of parameters of fewer than 131,072 elements.
    """

    name: str
    operators: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Averaging:
        """Read a backend's name, "feedback[/OPERATOR[/SMALL]]" or "diana[/OPERATOR[/SMALL]]".

        Raises ValueError for other names, CompressError, which is one, for unknown operators.
        """
        name, _, operators = text.partition("/")
        if name in _HOOKS:
            chosen = tuple((operators or _HOOKS[name]).split("/"))
            for operator in chosen:
                parse(operator, _LARGE)
            if len(chosen) <= 2:
                return cls(name, chosen)
        elif is_backend(text):
            return cls(text)
        hooks = " or ".join(f"{hook}[/OPERATOR[/SMALL]]" for hook in _HOOKS)
        raise ValueError(f"method {text!r} is not known: use {_ANY_BACKEND}, {hooks}")

    def __str__(self) -> str:
        return "/".join((self.name, *self.operators))

    @property
    def in_words(self) -> str:
        """What legends call it, such as "sparsewire, 1% top-k with error feedback"."""
        if not self.operators:
            return "gloo (dense)" if self.name == "gloo" else self.name
        operator, share = (*self.operators[0].split(":"), "")[:2]
        if operator.endswith("-k") and share.startswith("0."):
            operator = f"{100 * float(share):g}% {operator}"
        return f"sparsewire, {operator} with {_IN_WORDS[self.name]}"

    @property
    def backend(self) -> str:
        """The process group's."""
        return "sparsewire" if self.operators else self.name

    def operator_for(self, elements: int) -> Compressor:
        """The operator for a parameter of so many elements."""
        return parse(self.operators[-1 if elements < _SMALL else 0], elements)

    def attach(self, ddp: DistributedDataParallel, warmup: int) -> None:
        """Register the hook, if there is one; its first `warmup` steps send everything."""
        from sparsewire.torch import hooks

        state: hooks.ErrorFeedbackState | hooks.DianaState
        if self.name == "feedback":
            state = hooks.ErrorFeedbackState(compressor=self.operator_for, warmup_steps=warmup)
            ddp.register_comm_hook(state, hooks.error_feedback_hook)
        elif self.name == "diana":
            state = hooks.DianaState(
                compressor=self.operator_for, alpha=_ALPHA, warmup_steps=warmup
            )
            ddp.register_comm_hook(state, hooks.diana_hook)
        else:
            return
        state.register(ddp)


def check_backend(name: str) -> None:
    """Raise ValueError where `name` is no backend of torch."""
    if not is_backend(name):
        raise ValueError(f"backend {name!r} is not known: use {_ANY_BACKEND}")


def is_backend(name: str) -> bool:
    """Whether torch has what a name such as "gloo" or "cpu:gloo,cuda:nccl" stands for."""
    return all(_is_one_backend(part.rpartition(":")[2]) for part in name.lower().split(","))


def _is_one_backend(name: str) -> bool:
    if name in _BACKENDS:
        return True
    import torch.distributed as dist

    return name != dist.Backend.UNDEFINED and dist.is_backend_available(name)
