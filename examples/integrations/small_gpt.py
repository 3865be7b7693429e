"""A language model trained as nanoGPT trains its own: a flat script, accumulated gradients, DDP.

    torchrun --nproc-per-node 2 examples/integrations/small_gpt.py
    torchrun --nproc-per-node 2 examples/integrations/small_gpt.py gloo

It learns the bytes of this folder's scripts. nanoGPT's own train.py takes `--backend=sparsewire`.
"""

import math
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from task import show
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 256
CONTEXT = 32
WIDTH = 64
HEADS = 2
LAYERS = 2
BATCH = 8
STEPS = 12
WARM_UP = 3
MICRO_STEPS = 2
LEARNING_RATE = 1e-2
CLIP = 1.0


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mixing = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.mixing = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.query_key_value(self.before_attention(x)).unflatten(2, (3 * HEADS, -1))
        query, key, value = heads.transpose(1, 2).chunk(3, dim=1)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + seen.transpose(1, 2).flatten(2)
        return x + self.mixing(self.before_mixing(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.last = nn.LayerNorm(WIDTH)
        for table in self.tokens, self.places:
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        # The table of tokens is also the output's.
        logits = self.last(self.blocks(x)) @ self.tokens.weight.T
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def text() -> torch.Tensor:
    scripts = sorted(Path(__file__).parent.glob("*.py"))
    content = b"".join(script.read_bytes() for script in scripts)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).long()


def batch(data: torch.Tensor, random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    begins = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=random).tolist()
    rows = torch.stack([data[begin : begin + CONTEXT + 1] for begin in begins])
    return rows[:, :-1], rows[:, 1:]


def learning_rate(step: int) -> float:
    if step < WARM_UP:
        return LEARNING_RATE * (step + 1) / WARM_UP
    done = (step - WARM_UP) / (STEPS - WARM_UP)
    return LEARNING_RATE * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def main(backend: str) -> None:
    dist.init_process_group(backend)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Model()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    data, random = text(), torch.Generator().manual_seed(dist.get_rank())
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = learning_rate(step)
        for micro_step in range(MICRO_STEPS):
            # Gradients travel in the last of them only.
            ddp.require_backward_grad_sync = micro_step == MICRO_STEPS - 1
            loss = ddp(*batch(data, random)) / MICRO_STEPS
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if dist.get_rank() == 0 and step % 4 == 3:
            print(f"step {step + 1}: loss {MICRO_STEPS * loss.item():.4f}")
    show(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sparsewire")
