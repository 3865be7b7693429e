"""Packages that have moved are still found by their former names, with a warning, and once."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("scipy")

FORMER = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from sparsewire.{former} import {name} as imported
    import sparsewire.{package}
    import sparsewire.{former} as whole
from {present} import {name}
import {present} as present
assert imported is {name} and whole is present
assert present.__name__ == present.__spec__.name == "{present}"
(warning,) = [w for w in caught if "sparsewire" in str(w.message)]
assert warning.category is DeprecationWarning, warning
assert warning.filename == "<string>", warning.filename
assert "sparsewire.optimize.{package}" in str(warning.message)
try:
    import sparsewire.{package}.nothing
except ModuleNotFoundError as error:
    assert "sparsewire.optimize.{package}.nothing" in str(error)
else:
    raise AssertionError
"""

# All modules that there were under the former names, and what was in each.
MODULES = {
    "methods.asynchronous_isgd": ("optimize.methods.blocks", "AsynchronousIsgd"),
    "methods.block_method": ("optimize.methods.blocks", "BlockMethod"),
    "methods.checkpoint": ("optimize.methods.checkpoint", "save"),
    "methods.dcgd": ("optimize.methods.gradient_descent", "Dcgd"),
    "methods.diana": ("optimize.methods.diana", "Diana"),
    "methods.ef14": ("optimize.methods.error_feedback", "Ef14"),
    "methods.ef21": ("optimize.methods.error_feedback", "Ef21"),
    "methods.ef21_sgdm": ("optimize.methods.error_feedback", "Ef21Sgdm"),
    "methods.error_feedback": ("optimize.methods.error_feedback", "ErrorFeedback"),
    "methods.gd": ("optimize.methods.gradient_descent", "Gd"),
    "methods.iasgd": ("optimize.methods.blocks", "Iasgd"),
    "methods.ibcd": ("optimize.methods.blocks", "Ibcd"),
    "methods.ibgd": ("optimize.methods.blocks", "Ibgd"),
    "methods.isaga": ("optimize.methods.isaga", "DistributedIsaga"),
    "methods.isega": ("optimize.methods.diana", "Isega"),
    "methods.isgd": ("optimize.methods.blocks", "Isgd"),
    "methods.marina": ("optimize.methods.marina", "Marina"),
    "methods.method": ("optimize.methods.method", "Method"),
    "methods.network": ("optimize.methods.network", "Simulated"),
    "methods.qsgd": ("optimize.methods.gradient_descent", "Qsgd"),
    "methods.step_size": ("optimize.methods.method", "StepSize"),
    "methods.vr_diana": ("optimize.methods.diana", "VrDianaSaga"),
    "problems.dense_rows": ("optimize.problems.rows", "DenseRows"),
    "problems.eigenvalues": ("optimize.problems.linear_model", "extreme_eigenvalues"),
    "problems.errors": ("errors", "DataError"),
    "problems.least_squares": ("optimize.problems.losses", "LeastSquares"),
    "problems.linear_model": ("optimize.problems.linear_model", "LinearModel"),
    "problems.logistic": ("optimize.problems.losses", "Logistic"),
    "problems.nonconvex": ("optimize.problems.losses", "NonconvexLogistic"),
    "problems.partition": ("optimize.problems.examples", "by_label"),
    "problems.problem": ("optimize.problems.problem", "Problem"),
    "problems.reference": ("optimize.problems.reference", "solve"),
    "problems.sources": ("optimize.problems.examples", "read_libsvm"),
    "problems.sparse_rows": ("optimize.problems.rows", "SparseRows"),
}


@pytest.mark.parametrize(("former", "present"), MODULES.items(), ids=MODULES)
def test_former_names_lead_to_the_same_modules_and_warn(
    former: str, present: tuple[str, str]
) -> None:
    module, name = present
    script = FORMER.format(
        former=former,
        package=former.partition(".")[0],
        present=f"sparsewire.{module}",
        name=name,
    )
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr
