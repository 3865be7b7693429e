"""The network and the machines that a prediction is for."""

from __future__ import annotations

from dataclasses import dataclass

from sparsewire.tools.advise.prediction import costs


@dataclass(frozen=True)
class Network:
    """Hosts with a link each, in bits per second and direction, and `ranks` ranks each.

    `cores` are processors that all ranks of all hosts share, as they do in the lab, fewer where
    other work shares them, too; without, each rank has its own. `on_device`: gradients are on GPUs.
    """

    link_bits_s: float
    hosts: int
    ranks: int = 1
    cores: float | None = None
    on_device: bool = False

    @property
    def all_ranks(self) -> int:
        return self.hosts * self.ranks

    @property
    def crowd(self) -> float:
        """Ranks that wait for one processor where all have to work at once."""
        return max(1.0, self.all_ranks / self.cores) if self.cores else 1.0

    @property
    def is_shared(self) -> bool:
        """Whether what computes and what sends are on the same processors."""
        return self.cores is not None and self.all_ranks >= self.cores

    def wire_s(self, payload: float) -> float:
        """Seconds that so many bytes of a host take, one way."""
        return payload * costs.HEADERS * 8 / self.link_bits_s

    def copy_s(self, payload: float) -> float:
        """Seconds that so many bytes take between device and host; none where there is none."""
        return payload * costs.COPY_BYTE_S if self.on_device else 0.0
