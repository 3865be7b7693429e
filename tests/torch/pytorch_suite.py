"""PyTorch's suite of process groups as a module, which reads its environment when it is imported.

Servers of processes import it as well, at any time, and other tests' processes come from them.
"""

from __future__ import annotations

import os
from unittest.mock import patch

# Its ranks meet in files.
ENVIRONMENT = {"BACKEND": "gloo", "WORLD_SIZE": "3", "INIT_METHOD": "file://"}

with patch.dict(os.environ, ENVIRONMENT):
    from torch.testing._internal.distributed import distributed_test as suite

__all__ = ["ENVIRONMENT", "suite"]
