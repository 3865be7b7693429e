"""The loader for SGLang: `--custom-weight-loader sparsewire.weights.engines.sglang.load`.

Each of SGLang's workers calls it when `update_weights_from_tensor` names it as `load_format`. The
tensors of that call are not the new weights: they come from the publisher.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sparsewire.errors import InputError
from sparsewire.weights.engines.host_copy import HostCopy

if TYPE_CHECKING:
    import torch

LOAD_FORMAT = "sparsewire.weights.engines.sglang.load"
ADDRESS = "SPARSEWIRE_WEIGHTS_ADDRESS"
"""Variable of the environment: where the publisher is, host:port."""
CHECKPOINT = "SPARSEWIRE_WEIGHTS_CHECKPOINT"
"""Variable of the environment: what the model was loaded from, a local path; else nothing."""
VERSION = "sparsewire.version"
"""Name of a tensor with one number: the version to load. Without it, that is the newest."""
NO_TENSORS = "gARdLg=="
"""An empty list, as the HTTP interface of SGLang wants the tensors of one worker."""

_copies: WeakKeyDictionary[Any, HostCopy] = WeakKeyDictionary()


def load(model: Any, named_tensors: Sequence[tuple[str, torch.Tensor]]) -> None:
    """Load a version into the model, in place: what changed since the last, and at first all.

    Raises InputError if SPARSEWIRE_WEIGHTS_ADDRESS is missing, and what Receiver and the model
    raise. SGLang then answers with an error, and the next version repairs what is half loaded.
    """
    if model not in _copies:
        _copies[model] = _opened(os.environ)
    copy = _copies[model]
    copy.advance(_version_in(named_tensors))
    model.load_weights(copy.owed())
    copy.settle()


def _opened(environment: Mapping[str, str]) -> HostCopy:
    if ADDRESS not in environment:
        raise InputError(f"set {ADDRESS} to the publisher's host:port where SGLang starts")
    return HostCopy(environment[ADDRESS], environment.get(CHECKPOINT))


def _version_in(named_tensors: Sequence[tuple[str, torch.Tensor]]) -> int | None:
    found = [int(tensor) for name, tensor in named_tensors if name == VERSION]
    return found[0] if found else None
