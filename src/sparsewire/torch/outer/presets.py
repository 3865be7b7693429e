"""Outer optimizers as they were published: each with its source and its settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer

from sparsewire.torch.outer.fragments import layers_of, trained
from sparsewire.torch.outer.optimizer import OuterOptimizer

Inner = Optimizer | Sequence[Optimizer]


@dataclass(frozen=True)
class Preset:
    """One published method: `settings` of `OuterOptimizer`, and `derived` ones of the model."""

    source: str
    settings: dict[str, Any] = field(default_factory=dict)
    derived: Callable[[nn.Module, Inner], dict[str, Any]] = lambda model, inner: {}


class SignDescent(Optimizer):
    """theta <- theta - lr sign(gradient): the last step of DeMo, and of signSGD.

    lr is the learning rate that `inner` has at the time, so that it follows a schedule. This must
    be the same on all replicas in each round: of one that is late, or new, it may not be.
    """

    def __init__(self, parameters: Any, inner: Optimizer) -> None:
        super().__init__(parameters, {})
        self._inner = inner

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        rate = float(self._inner.param_groups[0]["lr"])
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter.add_(parameter.grad.sign(), alpha=-rate)


def _nesterov(rate: float, momentum: float) -> Callable[[list[nn.Parameter]], Optimizer]:
    return lambda parameters: SGD(parameters, rate, momentum, nesterov=True, fused=True)


def _sgd(rate: float, momentum: float = 0.0) -> Callable[[list[nn.Parameter]], Optimizer]:
    return lambda parameters: SGD(parameters, rate, momentum, fused=True)


def _streaming(model: nn.Module, inner: Inner) -> dict[str, Any]:
    """Fragments of three layers, as far as the model has so many."""
    return {"fragments": max(1, len(layers_of(trained(model))) // 3)}


def _demo(model: nn.Module, inner: Inner) -> dict[str, Any]:
    """The sign step has the learning rate of the inner optimizer, which must be SGD."""
    first = inner if isinstance(inner, Optimizer) else inner[0]
    return {"outer": lambda parameters: SignDescent(parameters, first)}


PRESETS: dict[str, Preset] = {
    "local_sgd": Preset(
        "Stich, Local SGD converges fast and communicates little, arXiv 1805.09767",
        {"every": 30, "outer": _sgd(1.0)},
    ),
    "diloco": Preset(
        "Douillard et al., DiLoCo, arXiv 2311.08105",
        {"every": 500, "outer": _nesterov(0.7, 0.9)},
    ),
    "streaming_diloco": Preset(
        "Douillard et al., Streaming DiLoCo with overlapping communication, arXiv 2501.18512",
        {
            "every": 30,
            "compressor": "fp4",
            "decay": 0.0,
            "strided": True,
            "delay": 1,
            "mix": 0.5,
            "outer": _nesterov(0.4, 0.9),
        },
        _streaming,
    ),
    "sparseloco": Preset(
        "Sarfi et al., Communication efficient LLM pre-training with SparseLoCo, arXiv 2508.15706",
        {
            "every": 30,
            "compressor": "centroids:64+span-top-k:64:4096",
            "decay": 0.95,
            "outer": _sgd(1.0),
        },
    ),
    "demo": Preset(
        "Peng et al., DeMo: Decoupled momentum optimization, arXiv 2411.19870",
        {"every": 1, "compressor": "dct-top-k:32", "decay": 0.999},
        _demo,
    ),
    "muloco": Preset(
        "Therien et al., MuLoCo: Muon is a practical inner optimizer for DiLoCo, arXiv 2505.23725",
        {"every": 30, "outer": _nesterov(0.7, 0.6)},
    ),
    "noloco": Preset(
        "Kolehmainen et al., NoLoCo: No-all-reduce low communication training, arXiv 2506.10911",
        {"every": 50, "topology": "pairs", "outer": _sgd(0.7, 0.5)},
    ),
}


def preset(
    name: str, model: nn.Module, inner: Inner | None = None, **changes: Any
) -> OuterOptimizer:
    """The outer optimizer that a paper describes, with its settings, or `changes` of them.

    `name` is local_sgd, diloco, streaming_diloco, sparseloco, demo, muloco or noloco; `PRESETS` has
    the sources. `inner` is the training loop's optimizer: AdamW in the papers, SGD for "demo", and
    that of `muon(model)` for "muloco", which is made if left out and is `inner` of the result.

    Raises ValueError for other names, and what `OuterOptimizer` raises.
    """
    if name not in PRESETS:
        raise ValueError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    chosen = PRESETS[name]
    if inner is None:
        if name != "muloco":
            raise ValueError(f"{name} needs the optimizer of the training loop: pass inner")
        inner = muon(model)
    settings = {**chosen.settings, **chosen.derived(model, inner), **changes}
    return OuterOptimizer(model, inner, settings.pop("outer", None), **settings)


def muon(model: nn.Module, lr: float = 0.02, other_lr: float = 3e-4) -> list[Optimizer]:
    """Muon for the matrices of a model, and AdamW for all else, embeddings among it.

    Jordan et al., Muon, 2024; Liu et al., Muon is scalable for LLM training, arXiv 2502.16982. Call
    `step` of both, in this order.
    """
    embeddings = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters()
    }
    parameters = trained(model).values()
    matrices = [each for each in parameters if each.ndim == 2 and id(each) not in embeddings]
    chosen = {id(each) for each in matrices}
    others = [each for each in parameters if id(each) not in chosen]
    made: list[Optimizer] = []
    if matrices:
        made.append(torch.optim.Muon(matrices, lr=lr))
    if others:
        made.append(torch.optim.AdamW(others, lr=other_lr))
    return made
