"""The former name of `sparsewire.optimize.problems`."""

from sparsewire.moved import lead

lead(__name__, "sparsewire.optimize.problems")
