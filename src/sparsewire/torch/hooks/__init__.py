"""Communication hooks for DistributedDataParallel, on any process group: one hook per file."""

from sparsewire.torch.hooks.diana import DianaState, diana_hook
from sparsewire.torch.hooks.error_feedback import ErrorFeedbackState, error_feedback_hook
from sparsewire.torch.hooks.topk import TopKState, topk_hook

__all__ = [
    "DianaState",
    "ErrorFeedbackState",
    "TopKState",
    "diana_hook",
    "error_feedback_hook",
    "topk_hook",
]
