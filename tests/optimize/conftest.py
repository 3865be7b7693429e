"""A small data set for all tests of the optimisation, which need scikit-learn."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("sklearn")

from made_data import write_file

from sparsewire.launcher import RANK_NAMES


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in RANK_NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LIBSVM file of two classes: 300 rows, 40 features, most values zero."""
    return write_file(tmp_path_factory.mktemp("data") / "made.libsvm")
