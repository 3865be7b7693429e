"""The comparison of predictions with trainings in the lab, without a lab."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from recordings import recorded

from sparsewire.advise.answer import Model
from sparsewire.advise.network import Network

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import advise_check


def test_rows_have_both_times() -> None:
    model = Model(recorded(), Network(1.0, 4))
    measured = {f"words/{method}": {"step_s": 0.1} for method in advise_check.METHODS}
    found = advise_check.rows(model, "words", "1gbit", measured)
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
    assert advise_check.choice(found) == {"chosen": "sparsewire", "is_right": is_right}


def test_the_summary_counts_rows_of_both_kinds() -> None:
    rows = {
        "words/1gbit": {"is_right": True},
        "words/1gbit/gloo": {"is_close": True},
        "words/1gbit/feedback": {"is_close": False},
    }
    counts = {"close": 1, "predictions": 2, "right": 1, "choices": 1}
    assert advise_check.summary(rows) == counts
