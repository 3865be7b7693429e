"""What a version has beside tensors, as messages keep it from one version to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparsewire.weights.versions.message import Delta
from sparsewire.weights.versions.safetensors import Header


@dataclass
class Manifest:
    """The headers of its files, second names of its tensors, and JSON files."""

    headers: dict[str, Header] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)

    def follow(self, delta: Delta) -> None:
        """Become the next version's, by its message."""
        self.headers = dict(delta.headers)
        self.aliases = dict(delta.aliases)
        self.texts |= delta.texts
