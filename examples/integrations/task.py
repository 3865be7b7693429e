"""What the examples beside this file train, and how they show what carried the gradients.

Items have tags out of many, and the model scores items by their tags: so most rows of the table's
gradient are zero.
"""

import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.data import TensorDataset

TAGS = 5_000
WIDTH = 64
ITEMS = 320
TAGS_PER_ITEM = 8
BATCH = 16
STEPS = ITEMS // BATCH // 2
"""Of an epoch on two ranks."""
LEARNING_RATE = 0.1


def new_model() -> nn.Module:
    """The same on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(nn.EmbeddingBag(TAGS, WIDTH), nn.Linear(WIDTH, 1))


def data() -> TensorDataset:
    """Items, (ITEMS, TAGS_PER_ITEM), and their scores, (ITEMS, 1)."""
    random = torch.Generator().manual_seed(1)
    items = torch.randint(TAGS, (ITEMS, TAGS_PER_ITEM), generator=random)
    scores = torch.randn(TAGS, generator=random)
    return TensorDataset(items, scores[items].mean(1, keepdim=True))


def show(model: nn.Module, rank: int | None = None, group: dist.ProcessGroup | None = None) -> None:
    """Print how many collectives of a group the engine carried, and what the parameters came to.

    Rank and group are the default group's unless given.
    """
    digest = hashlib.sha256(b"".join(map(content, model.state_dict().values()))).hexdigest()
    rank = dist.get_rank() if rank is None else rank
    print(f"rank {rank}: {carried(group)} by the engine, parameters {digest[:16]}", flush=True)


def content(tensor: torch.Tensor | DTensor) -> bytes:
    whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole.detach().numpy().tobytes()


def carried(group: dist.ProcessGroup | None) -> int:
    """Collectives that sparsewire's engine carried."""
    # Imported here, so that the scripts work without.
    from sparsewire.torch import stats

    try:
        return stats(group)["operations"]
    except ValueError:
        return 0
