"""`import torch` runs this if sparsewire is installed: torch learns the backend's name.

Torch 2.5 and newer call `load` through the entry point `torch.backends`. Nothing else of sparsewire
is imported until a process group, or a variable of the environment, asks for it.
"""

from __future__ import annotations

import logging
import os
from importlib import import_module
from typing import Any

# The same as options.BACKEND, which is not imported here.
NAME = "sparsewire"

# Modules by variable of the environment: if it is set, the module's `attach` is called.
_ON_REQUEST = {
    "SPARSEWIRE_INSTEAD_OF": "sparsewire.instead_of",
    "SPARSEWIRE_PROFILE": "sparsewire.profile",
}

_log = logging.getLogger(__name__)


class _Plugins(dict[str, Any]):
    """Torch's table of backends. Our backend appears in it when torch first asks for it.

    Torch before 2.14 takes less care of groups with several backends once the table has any entry.
    """

    def __contains__(self, name: object) -> bool:
        if name == NAME.upper() and not super().__contains__(name):
            import_module("sparsewire.torch.backend").register()
        return super().__contains__(name)


def load() -> None:
    """Make `init_process_group("sparsewire")` work without an import; attach `_ON_REQUEST` modules.

    Never raises: `import torch` must not fail because of us. Failures are logged.
    """
    try:
        _make_known()
        for variable, module in _ON_REQUEST.items():
            if os.environ.get(variable):
                import_module(module).attach()
    except Exception:
        _log.warning("sparsewire could not attach itself to torch; torch works", exc_info=True)


def _make_known() -> None:
    """Tell torch all that it must know of our backend before it makes one.

    From 2.14 on, torch looks for backends by itself.
    """
    dist: Any = import_module("torch.distributed")
    if not dist.is_available() or hasattr(dist.Backend, "_ensure_backend_registered"):
        return
    backend = dist.Backend
    if NAME not in backend.backend_list:
        backend.SPARSEWIRE = NAME
        backend.backend_list.append(NAME)
        backend.backend_type_map[NAME] = dist.ProcessGroup.BackendType.CUSTOM
        backend.backend_capability[NAME] = ["cpu", "cuda"]
        backend._plugins = _Plugins(backend._plugins)
