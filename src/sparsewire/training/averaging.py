"""How the gradients of a training are averaged: in full, or by one of the compressing hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparsewire.compress import Compressor, parse

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

# In these networks, 1% of all blocks. The matrices of the LSTM and of the convolutions are small,
# but their gradients have no zeros: with 1% of them, too, training lags behind.
_HOOKS = {
    "feedback": "block-top-k:0.0065:8/block-top-k:0.1:8",
    "diana": "qsgd:7:256/qsgd:7:128",
}
_IN_WORDS = {"feedback": "error feedback", "diana": "DIANA"}
_BACKENDS = ("gloo", "mpi", "sparsewire")
_SMALL = 2**17
_LARGE = 2**24
# Gradients of small batches are mostly noise. Shifts that follow slowly average it.
_ALPHA = 0.1


class Averaging(NamedTuple):
    """A backend that averages gradients in full, or a hook on sparsewire with its operators.

    The second operator, if any, is that of parameters of fewer than 131,072 elements.
    """

    name: str
    operators: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Averaging:
        """Read a backend's name, "feedback/OPERATOR[/SMALL]" or "diana/OPERATOR[/SMALL]".

        Raises ValueError for other names, CompressError, which is one, for unknown operators.
        """
        name, _, operators = text.partition("/")
        if name in _HOOKS:
            chosen = tuple((operators or _HOOKS[name]).split("/"))
            for operator in chosen:
                parse(operator, _LARGE)
            if len(chosen) <= 2:
                return cls(name, chosen)
        elif name in _BACKENDS and not operators:
            return cls(name)
        known = [*_BACKENDS, *(f"{hook}/OPERATOR[/SMALL]" for hook in _HOOKS)]
        raise ValueError(f"method {text!r} is not known: use one of {', '.join(known)}")

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
        # The command reads methods before it needs torch.
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
