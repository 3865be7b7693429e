"""The former name of `sparsewire.optimize.problems`, of which some modules had other names."""

from sparsewire.moved import lead

_MODULES = {
    "dense_rows": ".rows",
    "eigenvalues": ".linear_model",
    "errors": "sparsewire.errors",
    "least_squares": ".losses",
    "logistic": ".losses",
    "nonconvex": ".losses",
    "partition": ".examples",
    "sources": ".examples",
    "sparse_rows": ".rows",
}

lead(__name__, "sparsewire.optimize.problems", _MODULES)
