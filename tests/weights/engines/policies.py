"""A policy of a few tensors: as a training has it, as a checkpoint, and as an engine fuses it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

Tensors = dict[str, torch.Tensor]

LAYERS = 2
WIDTH = 16
PARTS = ("q_proj", "k_proj", "v_proj")


def policy(seed: int = 0) -> Tensors:
    """Tensors of random bfloat16 numbers, by the names of a checkpoint."""
    torch.manual_seed(seed)
    shapes = {"model.embed_tokens.weight": (32, WIDTH), "model.norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        for part in PARTS:
            shapes[f"model.layers.{layer}.self_attn.{part}.weight"] = (WIDTH, WIDTH)
    return {name: torch.randn(shape).bfloat16() for name, shape in shapes.items()}


def step(tensors: Tensors, number: int) -> None:
    """Change one element in ten of every second tensor, in place."""
    torch.manual_seed(1000 + number)
    for name in list(tensors)[number % 2 :: 2]:
        tensor = tensors[name]
        chosen = torch.rand(tensor.shape) < 0.1
        chosen.view(-1)[number] = True
        tensor[chosen] = (tensor[chosen].float() * 1.5 + 0.25).bfloat16()


def save(tensors: Tensors, directory: Path) -> Path:
    """Write a checkpoint of one file."""
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    save_file(tensors, directory / "model.safetensors")
    return directory


def sums(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """A checksum of each tensor's bits."""
    return {
        name: hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
        for name, tensor in sorted(tensors.items())
    }


class FusedModel(torch.nn.Module):
    """An engine's model of the policy: q, k and v of a layer are one parameter.

    While it is `reloading`, parameters are made anew: what does not come is NaN, as in vLLM's
    layer by layer reload what does not come is whatever was in the memory.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.fused = {name: torch.empty(0) for name in map(fused_name, tensors)}
        self.fresh: Tensors | None = None
        self.loaded: list[str] = []
        self.fails_at: str | None = None
        for name in self.fused:
            shape = tensors[name].shape if name in tensors else (len(PARTS) * WIDTH, WIDTH)
            self.fused[name] = torch.zeros(shape, dtype=torch.bfloat16)
        self.load_weights(tensors.items())

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """What every engine's model has: it takes tensors by the names of the checkpoint."""
        for name, tensor in weights:
            if name == self.fails_at:
                self.fails_at = None
                raise RuntimeError("out of memory")
            self.loaded.append(name)
            self._target(name).copy_(tensor)

    def _target(self, name: str) -> torch.Tensor:
        owner = fused_name(name)
        held = self.fused[owner]
        if self.fresh is not None:
            held = self.fresh.setdefault(owner, torch.full_like(held, torch.nan))
        return part_of(held, name)

    def begin_reload(self) -> None:
        self.fresh = {}

    def end_reload(self) -> None:
        self.fused |= self.fresh or {}
        self.fresh = None

    def tensors(self, names: Iterable[str]) -> Tensors:
        """What it has, by the names of the checkpoint."""
        return {name: part_of(self.fused[fused_name(name)], name) for name in names}


def fused_name(name: str) -> str:
    for part in PARTS:
        name = name.replace(part, "qkv_proj")
    return name


def part_of(fused: torch.Tensor, name: str) -> torch.Tensor:
    found = [number for number, part in enumerate(PARTS) if part in name]
    return fused[found[0] * WIDTH :][:WIDTH] if found else fused


class Served:
    """A model of a checkpoint, and what tests ask of it."""

    def __init__(self, checkpoint: str) -> None:
        from safetensors.torch import load_file

        tensors = load_file(Path(checkpoint) / "model.safetensors")
        self._names = list(tensors)
        self.model = FusedModel(tensors)
        self.model.loaded.clear()

    def sums(self) -> dict[str, str]:
        return sums(self.model.tensors(self._names))

    def loaded(self) -> list[str]:
        """The names that were loaded since this was asked last."""
        loaded, self.model.loaded = self.model.loaded, []
        return loaded

    def fail_at(self, name: str) -> None:
        self.model.fails_at = name
