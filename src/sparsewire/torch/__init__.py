"""PyTorch integration: makes `dist.init_process_group("sparsewire")` work.

Where sparsewire is installed, torch imports it as soon as a group asks for that backend.
"""

from sparsewire.torch.backend import device_choices, register, stats, status

register()

__all__ = ["device_choices", "register", "stats", "status"]
