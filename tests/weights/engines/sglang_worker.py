"""A process that serves a policy as a worker of SGLang does, with a custom weight loader."""

from __future__ import annotations

import importlib

import calls
import torch
from policies import Served


class SglangServed(Served):
    def update_weights_from_tensor(self, named_numbers: list[list], load_format: str) -> None:
        """As SGLang: the loader is imported by its name, and gets the model and the tensors."""
        module, _, function = load_format.rpartition(".")
        load = getattr(importlib.import_module(module), function)
        load(self.model, [(name, torch.tensor([number])) for name, number in named_numbers])


if __name__ == "__main__":
    calls.serve(SglangServed)
