"""PyTorch integration: importing it makes `dist.init_process_group("sparsewire")` work."""

from sparsewire.torch.backend import register

register()

__all__ = ["register"]
