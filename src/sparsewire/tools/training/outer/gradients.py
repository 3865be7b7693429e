"""Methods that average the gradients of each step: DistributedDataParallel, bare or hooked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from sparsewire.tools.training.outer.expected import of_gradients
from sparsewire.tools.training.outer.method import Averaged, Method, adamw
from sparsewire.tools.training.outer.order import Order
from sparsewire.tools.training.trial import Averaging

_TOP_K = "feedback/rounded:4:4+span-top-k:4:512"
"""The operator of `topk_hook`."""


def _gradients(name: str, in_words: str, averaging: str, tuned_as: str | None = None) -> Method:
    how = Averaging.parse(averaging)

    @contextmanager
    def attached(
        order: Order, module: nn.Module, model: nn.Module, inner: Sequence[Optimizer]
    ) -> Iterator[Averaged]:
        ddp = DistributedDataParallel(module, init_sync=False)
        how.attach(ddp, warmup=0)
        yield Averaged(ddp, lambda: None, partial(_told, how, order, model))

    return Method(name, in_words, how.backend, adamw, attached, tuned_as=tuned_as)


def _told(how: Averaging, order: Order, model: nn.Module) -> dict[str, Any]:
    if how.operators:
        return {}
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"expected_up": of_gradients(order.steps, parameters, dist.get_world_size())}


GRADIENTS = (
    _gradients("ddp-gloo", "DDP over gloo", "gloo"),
    _gradients("ddp-sparsewire", "DDP over sparsewire", "sparsewire", "ddp-gloo"),
    _gradients("ddp-top-k", "DDP, top-k hook", _TOP_K),
)
