"""Weight transfer of vLLM, 0.23 to 0.32: the plug-in that makes the back end `sparsewire` known.

Workers of vLLM take classes that inherit from theirs. Ours are written without vLLM, and married to
its own when it is there.
"""

from __future__ import annotations

import contextlib
import types
import warnings
from typing import Any

from sparsewire.weights.engines.vllm.reader import Reader
from sparsewire.weights.engines.vllm.trainer import BACKEND, Trainer, TrainerInfo

__all__ = ["BACKEND", "TrainerInfo", "register"]


def register() -> None:
    """Make the back end known in this process.

    vLLM calls this in each of its processes, by the entry point `vllm.general_plugins`. A trainer
    that uses `WeightTransferTrainerFactory` calls it itself.
    """
    try:
        from vllm.distributed.weight_transfer import base, factory
    except ImportError:
        warnings.warn("this vLLM has no weight transfer: use 0.23 or newer", stacklevel=2)
        return
    _add(factory.WeightTransferEngineFactory, Reader, base.WeightTransferEngine)
    # Before 0.28 vLLM had no classes for trainers.
    if trainers := getattr(factory, "WeightTransferTrainerFactory", None):
        _add(trainers, Trainer, base.TrainerWeightTransferEngine)


def _add(factory: Any, ours: type, theirs: type) -> None:
    name = f"Sparsewire{theirs.__name__}"
    # It is there already if this was called before.
    with contextlib.suppress(ValueError):
        factory.register_engine(BACKEND, types.new_class(name, (ours, theirs)))
