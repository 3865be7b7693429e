"""The tests of methods need scikit-learn, for data."""

import pytest

pytest.importorskip("sklearn")
