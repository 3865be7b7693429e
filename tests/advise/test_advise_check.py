"""The comparison of predictions with trainings in the lab, without a lab."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from recordings import recorded

from sparsewire.tools.advise.answer import Model, OnLink
from sparsewire.tools.advise.prediction.network import Network

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import advise_check


def on_link() -> OnLink:
    return Model(recorded(), Network(1.0, 4)).on_link(1e9)


def test_rows_have_both_times() -> None:
    measured = dict.fromkeys(advise_check.METHODS, 0.1)
    found = advise_check.rows(on_link(), measured, 0.2)
    gloo = found["gloo"]
    assert gloo["predicted_s"] == pytest.approx(0.1 * gloo["ratio"])
    assert gloo["is_close"] == (0.8 <= gloo["ratio"] <= 1.2)
    assert gloo["is_inside"] == (gloo["low_s"] <= 0.1 <= gloo["high_s"])
    assert found["sparsewire"]["predicted_s"] < gloo["predicted_s"]


@pytest.mark.parametrize(("ours", "is_right"), [(0.5, True), (1.04, True), (1.1, False)])
def test_a_choice_is_right_if_it_is_about_the_fastest(ours: float, is_right: bool) -> None:
    found = {
        "gloo": {"predicted_s": 2.0, "measured_s": 1.0},
        "sparsewire": {"predicted_s": 1.0, "measured_s": ours},
    }
    assert advise_check.choice(found) == {"chosen": "sparsewire", "is_right": is_right}


@pytest.mark.parametrize(("gloo", "is_true"), [(2.0, True), (0.9, False)])
def test_it_pays_is_true_only_where_it_was_faster(gloo: float, is_true: bool) -> None:
    link = on_link()
    dense = replace(link, rows=[r for r in link.rows if not r.method.splits])
    assert dense.gain.value == "pays"
    found = advise_check.said(dense, {"gloo": gloo, "sparsewire": 1.0, "feedback": 0.1})
    assert found == {"said": "pays", "gained": gloo, "is_true": is_true}


def test_the_summary_counts_rows_of_both_kinds() -> None:
    rows = {
        "words/1gbit": {"is_right": True, "is_true": False},
        "words/1gbit/gloo": {"is_close": True, "is_inside": True},
        "words/1gbit/feedback": {"is_close": False, "is_inside": True},
    }
    counts = {"close": 1, "inside": 2, "predictions": 2, "right": 1, "true": 0, "choices": 1}
    assert advise_check.summary(rows) == counts
