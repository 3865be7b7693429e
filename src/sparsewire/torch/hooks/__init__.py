"""Communication hooks for DistributedDataParallel, on any process group: one hook per file."""

from sparsewire.torch.hooks.topk import topk_hook
from sparsewire.torch.hooks.topk_state import TopKState

__all__ = ["TopKState", "topk_hook"]
