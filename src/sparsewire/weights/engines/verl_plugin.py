"""Makes the back end `sparsewire` known to verl: `custom_backend_module` names this module.

verl imports it where its configuration says so, and looks for the back end right after. So it is
the one module here that imports an engine.
"""

from types import new_class

from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry

from sparsewire.weights.engines.verl import BACKEND, Engine

CheckpointEngineRegistry.register(BACKEND)(
    new_class("SparsewireCheckpointEngine", (Engine, CheckpointEngine))
)
