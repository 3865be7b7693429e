"""PyTorch integration: makes `dist.init_process_group("sparsewire")` work.

Torch 2.14 and newer import it by themselves; older versions need `import sparsewire.torch`.
"""

from sparsewire.profile.attaching import profile
from sparsewire.torch.backend import device_choices, register, stats, status

register()

__all__ = ["device_choices", "profile", "register", "stats", "status"]
