"""The aggregator in the kernel's data plane: loads the programs of bpf/, and tells them of jobs."""

from sparsewire.xdp.plane import XdpPlane

__all__ = ["XdpPlane"]
