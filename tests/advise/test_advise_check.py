"""The comparison of predictions with trainings in the lab, without a lab."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from recordings import recorded

from sparsewire.advise.answer import Model
from sparsewire.advise.network import Network

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import advise_check


class Measured(advise_check.Setting):
    """A setting whose runs all take 0.1 s."""

    def measured(self, method: str) -> dict[str, Any]:
        return {"step_s": 0.1}

    def recorded(self, directory: Path) -> Model:
        return Model(recorded(), Network(1.0, self.hosts))


def test_rows_have_both_times() -> None:
    found = dict(advise_check.rows(Measured("words", [], 4, "1gbit", 5), ["gloo", "sparsewire"]))
    gloo = found["gloo"]
    assert gloo["predicted_s"] == pytest.approx(0.1 * gloo["ratio"])
    assert gloo["is_close"] == (0.8 <= gloo["ratio"] <= 1.2)
    assert found["sparsewire"]["predicted_s"] < gloo["predicted_s"]


@pytest.mark.parametrize(("ours", "is_right"), [(0.5, True), (1.04, True), (1.1, False)])
def test_a_choice_is_right_if_it_is_about_the_fastest(ours: float, is_right: bool) -> None:
    found = {
        "gloo": {"predicted_s": 2.0, "measured_s": 1.0},
        "sparsewire": {"predicted_s": 1.0, "measured_s": ours},
    }
    assert advise_check.right_choice(found) is is_right


def test_processors_are_no_more_than_there_are() -> None:
    assert 0 < advise_check.processors(2) <= advise_check.os.cpu_count()
