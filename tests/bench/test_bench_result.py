"""What is made of the ranks' measurements."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from sparsewire.tools.bench.job import Case, Sample
from sparsewire.tools.bench.result import CaseResult, Outcome, summarise, tables, time_by_density
from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.report import number
from sparsewire.tools.measure.wire_limit import Share

MB = 1_000_000


IN_THE_LAB = Cluster(2, emulated=True, link="1gbit")


def result(cluster: Cluster = IN_THE_LAB) -> CaseResult:
    case = Case("blocks:256", MB, 0.1, iterations=2, warmup=0, burst=1)
    gloo = [Sample(s, 0.5, 0.5, 12 * MB, 15 * MB) for s in ([0.8, 0.8], [0.7, 0.9])]
    ours = [Sample(s, 0.2, 0.4, 2 * MB, 3 * MB) for s in ([0.1, 0.3], [0.2, 0.2])]
    samples = {"gloo": gloo, "sparsewire": ours}
    outcome = Outcome(samples, Share(0.1, 0.3), aggregator_cpu_s=1.0)
    return summarise(case, outcome, cluster, item_bytes=4)


def test_a_call_takes_as_long_as_its_slowest_rank() -> None:
    measured = result().backends["sparsewire"]
    assert measured.times_s == [0.2, 0.3]
    assert measured.median_s == pytest.approx(0.25)
    assert measured.algbw_bytes_per_s == pytest.approx(16 * MB)
    assert measured.busbw_bytes_per_s == pytest.approx(16 * MB)
    assert measured.speedup_over_gloo == pytest.approx(0.85 / 0.25)


def test_limits_follow_from_the_measured_densities() -> None:
    measured = result()
    assert measured.backends["sparsewire"].limit_s == pytest.approx(0.5 * 0.4 * 4 * MB * 8 / 1e9)
    assert measured.gloo_limit_s == measured.backends["gloo"].limit_s == pytest.approx(0.032)
    assert measured.backends["gloo"].limit_ratio == pytest.approx(0.85 / 0.032)
    assert result(Cluster(2)).backends["gloo"].limit_ratio is None


def test_several_links_of_a_host_carry_together() -> None:
    wide = replace(IN_THE_LAB, links=2)
    assert wide.place == "emulated hosts at 2 x 1gbit"
    assert result(wide).gloo_limit_s == pytest.approx(0.016)


def test_processor_time_is_summed_over_ranks_and_aggregators_per_call() -> None:
    measured = result().backends
    assert measured["sparsewire"].cpu_s == pytest.approx((2 * 0.6 + 1.0) / 2)
    assert measured["gloo"].cpu_s == pytest.approx(1.0)


def test_sent_bytes_come_from_the_interface_only_where_it_is_not_shared() -> None:
    assert result().backends["sparsewire"].bytes_sent_per_rank == 1.5 * MB
    assert result(Cluster(2)).backends["sparsewire"].bytes_sent_per_rank == MB


def test_tables_fit_into_100_columns() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(*tables([result()]))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "sparsewire" in text
    assert "3.40x" in text
    assert max(map(len, text.splitlines())) <= 100


def sparse_result() -> CaseResult:
    case = Case("random", MB, 0.1, iterations=2, warmup=0, burst=1)
    samples = {
        "gloo-sparse": Sample([0.5, 0.5]),
        "sparsewire": Sample(
            [0.1, 0.1], prediction={"algorithm": "auto", "chosen": "stream", "predicted_s": 0.08}
        ),
        "sparsewire/ssar_recursive_double": Sample(
            [0.2, 0.2],
            prediction=dict.fromkeys(("algorithm", "chosen"), "ssar_recursive_double"),
        ),
    }
    outcome = Outcome({name: [sample] * 2 for name, sample in samples.items()}, Share(0.1, 0.3))
    return summarise(case, outcome, IN_THE_LAB, item_bytes=4)


def test_what_was_chosen_and_predicted_is_told() -> None:
    measured = sparse_result().backends["sparsewire"]
    assert (measured.algorithm, measured.chosen, measured.predicted_s) == ("auto", "stream", 0.08)
    assert measured.speedup_over_gloo_sparse == pytest.approx(5)
    assert measured.speedup_over_gloo is None


def test_tables_of_sparse_input_name_algorithms_within_100_columns() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(*tables([sparse_result()]))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert all(name in text for name in ("gloo-sparse", "(stream)", "ssar_recursive_double "))
    assert "80.0" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (1234.5, "1234"), (12.34, "12.3"), (0.0123, "0.012")]
)
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    time_by_density([result()], "title").savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_plot_has_one_line_of_dense_gloo_for_all_patterns() -> None:
    results = [replace(result(), pattern=pattern) for pattern in ("random", "blocks:256")]
    (axes,) = time_by_density(results, "title").axes
    _, labels = axes.get_legend_handles_labels()
    ours = ["sparsewire, elements anywhere", "sparsewire, blocks of 256"]
    assert labels == ["gloo (dense)", *ours, "wire limit"]
    _, labels = time_by_density([result()], "title").axes[0].get_legend_handles_labels()
    assert labels == ["gloo (dense)", "sparsewire", "wire limit"]
