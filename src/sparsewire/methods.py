"""The former name of `sparsewire.optimize.methods`."""

from sparsewire.moved import lead

lead(__name__, "sparsewire.optimize.methods")
