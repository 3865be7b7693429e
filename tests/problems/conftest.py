"""The tests of problems need scikit-learn and SciPy."""

import pytest

pytest.importorskip("sklearn")
