"""The former name of `sparsewire.optimize.methods`, of which some modules had other names."""

from sparsewire.moved import lead

_MODULES = {
    "asynchronous_isgd": ".blocks",
    "block_method": ".blocks",
    "dcgd": ".gradient_descent",
    "ef14": ".error_feedback",
    "ef21": ".error_feedback",
    "ef21_sgdm": ".error_feedback",
    "gd": ".gradient_descent",
    "iasgd": ".blocks",
    "ibcd": ".blocks",
    "ibgd": ".blocks",
    "isega": ".diana",
    "isgd": ".blocks",
    "qsgd": ".gradient_descent",
    "step_size": ".method",
    "vr_diana": ".diana",
}

lead(__name__, "sparsewire.optimize.methods", _MODULES)
