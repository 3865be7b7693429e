"""What the examples beside this file train, and how they show what carried the gradients.

Items have tags out of many, and the model scores items by their tags: so most rows of the table's
gradient are zero.
"""

import hashlib

import torch
import torch.distributed as dist
from torch import nn
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


def show(model: nn.Module) -> None:
    """Print how many collectives the engine carried, and what the parameters came to."""
    values = b"".join(each.detach().numpy().tobytes() for each in model.state_dict().values())
    digest = hashlib.sha256(values).hexdigest()[:16]
    print(f"rank {dist.get_rank()}: {carried()} by the engine, parameters {digest}", flush=True)


def carried() -> int:
    """Collectives of the default group that sparsewire's engine carried."""
    # Imported here, so that the scripts work without.
    from sparsewire.torch import stats

    try:
        return stats()["operations"]
    except ValueError:
        return 0
