"""The ways to average that are compared: gradients at each step, or an outer optimizer's rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sparsewire.tools.training.trial import Averaging

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from sparsewire.tools.training.outer.order import Order


class Averaged(NamedTuple):
    """A model whose replicas are averaged, while a training lasts."""

    module: nn.Module
    """Gives the loss in place of the model's own pass."""
    finish: Callable[[], None]
    """Brings all replicas to one point, at the end; collective."""
    told: Callable[[], Mapping[str, Any]]
    """What the method itself has to tell of it."""


@dataclass(frozen=True)
class Method:
    """`rates` are the peaks of the inner optimizer's rate to begin tuning with, `outer_rates` those
    of the outer one, the published one in the middle; none where there is none."""

    name: str
    in_words: str
    backend: str
    inner: Callable[[nn.Module, float], Optimizer]
    open: Callable[[Order, nn.Module, nn.Module, Optimizer], AbstractContextManager[Averaged]]
    """Takes the order, the module whose pass gives the loss, the model in it and the optimizer."""
    rates: tuple[float, ...]
    outer_rates: tuple[float, ...] = ()
    period: int = 1
    """Steps after which what is sent repeats itself."""


def adamw(model: nn.Module, rate: float) -> Optimizer:
    """As GPTs are trained with."""
    import torch

    parameters, betas = model.parameters(), (0.9, 0.95)
    return torch.optim.AdamW(parameters, rate, betas, weight_decay=0.1, fused=True)


def _gradients(name: str, in_words: str, averaging: str) -> Method:
    """DistributedDataParallel, which averages gradients as this text says."""
    how = Averaging.parse(averaging)

    @contextmanager
    def attached(
        order: Order, module: nn.Module, model: nn.Module, inner: Optimizer
    ) -> Iterator[Averaged]:
        from torch.nn.parallel import DistributedDataParallel

        ddp = DistributedDataParallel(module, init_sync=False)
        how.attach(ddp, warmup=0)
        yield Averaged(ddp, lambda: None, dict)

    return Method(name, in_words, how.backend, adamw, attached, RATES)


RATES = (1e-3, 2e-3, 4e-3)
_TOP_K = "feedback/rounded:4:4+span-top-k:4:512"
"""That of `topk_hook`."""

METHODS = {
    method.name: method
    for method in (
        _gradients("ddp-gloo", "DDP over gloo", "gloo"),
        _gradients("ddp-sparsewire", "DDP over sparsewire", "sparsewire"),
        _gradients("ddp-top-k", "DDP, top-k hook with error feedback", _TOP_K),
    )
}
