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
    from sparsewire.{name}.{module} import {kind} as former
    import sparsewire.{name}
    import sparsewire.{name}.{module} as whole
from sparsewire.optimize.{name} import {module} as present
assert former is present.{kind} and whole is present
assert present.__name__ == present.__spec__.name == "sparsewire.optimize.{name}.{module}"
(warning,) = [w for w in caught if "sparsewire" in str(w.message)]
assert warning.category is DeprecationWarning, warning
assert warning.filename == "<string>", warning.filename
assert "sparsewire.optimize.{name}" in str(warning.message)
try:
    import sparsewire.{name}.nothing
except ModuleNotFoundError as error:
    assert "sparsewire.optimize.{name}.nothing" in str(error)
else:
    raise AssertionError
"""


@pytest.mark.parametrize(
    ("name", "module", "kind"),
    [("methods", "diana", "Diana"), ("problems", "losses", "Logistic")],
)
def test_former_names_lead_to_the_same_modules_and_warn(name: str, module: str, kind: str) -> None:
    script = FORMER.format(name=name, module=module, kind=kind)
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr
