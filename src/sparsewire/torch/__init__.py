"""PyTorch integration: makes `dist.init_process_group("sparsewire")` work.

If sparsewire is installed, torch imports this as soon as a group asks for that backend.
"""

from sparsewire.profile.attaching import profile
from sparsewire.torch.backend import device_choices, register, stats, status

register()

__all__ = ["device_choices", "profile", "register", "stats", "status"]
