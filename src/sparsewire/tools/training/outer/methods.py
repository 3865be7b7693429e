"""All ways to average that `sparsewire bench outer` compares, by name."""

from sparsewire.tools.training.outer.gradients import GRADIENTS
from sparsewire.tools.training.outer.method import Method
from sparsewire.tools.training.outer.presets import PRESET_METHODS

METHODS: dict[str, Method] = {method.name: method for method in (*GRADIENTS, *PRESET_METHODS)}
