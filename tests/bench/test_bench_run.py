"""Options, jobs, the command, and whole runs on loopback."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparsewire.errors import ExperimentError, WorkerFailed
from sparsewire.tools.bench.all_reduce import run_all_reduce, settings
from sparsewire.tools.bench.job import BenchOptions, Case, Job
from sparsewire.tools.cli.bench import bench
from sparsewire.tools.cli.options import network_of
from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.lab import Lab, available

WHY_NOT = available()


def test_options_become_every_combination() -> None:
    options = BenchOptions(elements="4KiB,1e6", density="1,0.1", pattern="random|blocks:256,same")
    job = options.job(ranks=2)
    assert len({(c.pattern, c.elements, c.density) for c in job.cases}) == 8
    assert job.backends == ["sparsewire"]
    assert Job.from_json(json.dumps(dataclasses.asdict(job))) == job


def test_small_buffers_are_called_often_and_in_bursts() -> None:
    small, large = BenchOptions(elements="4KiB,25e6").job(ranks=2).cases
    assert small.iterations >= 200
    assert small.burst > 1
    assert small.warmup >= small.burst
    assert (large.iterations, large.burst) == (10, 1)


def test_bursts_are_as_long_as_asked() -> None:
    small, large = BenchOptions(elements="4KiB,25e6", burst=4, iterations=10).job(ranks=2).cases
    assert (small.burst, large.burst) == (4, 4)
    assert small.iterations == 12
    (few,) = BenchOptions(elements="4KiB", burst=4, iterations=3).job(ranks=2).cases
    assert (few.burst, few.iterations) == (3, 3)


def test_bursts_that_do_not_fit_into_memory_are_refused() -> None:
    with pytest.raises(ExperimentError, match="or a shorter --burst"):
        BenchOptions(elements="25e6", burst=10**6, iterations=10**6).job(ranks=2)


@pytest.mark.parametrize(
    "fields",
    [{"dtype": "int32", "op": "avg"}, {"elements": "1e15"}, {"elements": "1,"}, {"density": "2"}],
)
def test_bad_options_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ExperimentError):
        BenchOptions(**{"elements": "1000", **fields}).job(ranks=4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"against": "nccl"},
        {"against": "gloo-sparse"},
        {"algorithm": "stream"},
        {"input": "sparse", "algorithm": "best"},
        {"input": "sparse", "op": "max"},
        {"input": "sparse", "through": "torch", "algorithm": "ring"},
        {"input": "sparse", "through": "both", "result": "dense"},
        {"precision": "int7"},
        {"precision": "int8", "dtype": "float64"},
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ExperimentError):
        BenchOptions(**{"elements": "1000", **fields}).job(ranks=4)  # type: ignore[arg-type]


def test_every_algorithm_is_a_backend_of_its_own() -> None:
    options = BenchOptions(
        elements="1000", input="sparse", algorithm="auto,ring", against="gloo,gloo-sparse"
    )
    assert options.job(4).backends == ["gloo", "gloo-sparse", "sparsewire", "sparsewire/ring"]


def test_torch_stands_beside_the_arrays_or_in_their_place() -> None:
    asked = {"elements": "1000", "input": "sparse", "against": "gloo"}
    assert BenchOptions(**asked, through="torch").job(4).backends == ["gloo", "sparsewire-torch"]
    both = ["gloo", "sparsewire", "sparsewire-torch"]
    assert BenchOptions(**asked, through="both").job(4).backends == both


def test_bad_clusters_are_refused() -> None:
    with pytest.raises(ExperimentError):
        Cluster(ranks=1)
    with pytest.raises(ExperimentError):
        Cluster(ranks=2, link="1gbit")
    with pytest.raises(ExperimentError, match="--links are of emulated hosts"):
        Cluster(ranks=2, links=2)
    with pytest.raises(ValueError, match="cannot read link speed"):
        Cluster(ranks=2, emulated=True, link="fast")


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({"aggregator_link": "2gbit"}, "give --hosts"),
        ({"mtu": 9000}, "give --hosts"),
        ({"transport": "xdp", "aggregators": 1}, "give --hosts"),
        ({"loss": 0.01}, "give --hosts, or udp"),
    ],
)
def test_what_needs_emulated_hosts_says_so(fields: dict[str, Any], needs: str) -> None:
    with pytest.raises(ExperimentError, match=needs):
        Cluster(ranks=2, **fields)
    assert Cluster(ranks=2, emulated=True, **fields)


def test_aggregators_may_have_links_without_a_limit() -> None:
    given = {"aggregators": 1, "transport": "tcp", "hierarchy": False, "racks": 1, "loss": None}
    network = network_of(
        {**given, "links": 1, "mtu": None, "trunk": None, "aggregator_link": "none"}
    )
    cluster = Cluster(2, emulated=True, link="1gbit", **network)
    assert str(cluster).endswith("1 dedicated aggregator over tcp without a limit")
    assert cluster.aggregator_links == math.inf
    lab = cluster.open()
    assert isinstance(lab, Lab)
    assert (lab._link, lab._aggregator_link) == (10**9, None)


def test_a_title_tells_how_the_ranks_are_connected() -> None:
    cluster = Cluster(
        *(4, 1, True, "500mbit"), aggregator_link="2gbit", transport="udp", loss=0.01, mtu=9000
    )
    where = "4 ranks on emulated hosts at 500mbit"
    assert str(cluster) == f"{where}, 1 dedicated aggregator over udp at 2gbit, MTU 9000, 1% loss"
    assert str(Cluster(4, 2)) == "4 ranks on loopback, 2 dedicated aggregators"


def test_settings_reach_ranks_and_aggregators() -> None:
    job = dataclasses.replace(gloo_job(), arithmetic="fixed", seed=7)
    told = settings(job, Cluster(2, 1, transport="udp", loss=0.05))
    assert told["SPARSEWIRE_ARITHMETIC"] == "fixed"
    assert told["SPARSEWIRE_DISTURB"] == "loss=0.05,seed=7"
    # There the lab itself loses packets.
    assert "SPARSEWIRE_DISTURB" not in settings(job, Cluster(2, 1, True, loss=0.05))
    assert "SPARSEWIRE_ARITHMETIC" not in settings(gloo_job(), Cluster(2))


@pytest.mark.parametrize(
    ("arithmetic", "transport"),
    [("fixed", None), ("fixed", "tcp"), ("exact", "xdp"), (None, "xdp")],
)
def test_arithmetic_is_that_of_the_transport(arithmetic: str | None, transport: str | None) -> None:
    job = dataclasses.replace(gloo_job(), arithmetic=arithmetic)
    with pytest.raises(ExperimentError, match="fixed"):
        run_all_reduce(job, Cluster(2, 1, True, transport=transport), lambda *move: None)


def gloo_job(*cases: Case, backends: tuple[str, ...] = ("gloo",)) -> Job:
    return Job(cases=list(cases), backends=list(backends), timeout=30.0)


def test_a_run_measures_every_case_on_every_rank() -> None:
    pytest.importorskip("torch")
    moves: list[tuple[float, str]] = []
    case = Case("blocks:256", 2560, 0.5, iterations=4, warmup=2, burst=2)
    job = gloo_job(case, dataclasses.replace(case, pattern="random", density=1.0))
    first, second = run_all_reduce(
        job, Cluster(ranks=2), lambda name, done, total, state="": moves.append((done, state))
    )
    assert first.share_mean == 0.5
    assert 0.5 <= first.share_union <= 1.0
    assert second.share_union == 1.0
    assert len(first.backends["gloo"].times_s) == 4
    assert first.backends["gloo"].counted_bytes_sent_per_rank == 2560 * 4
    assert [done for done, _ in moves] == pytest.approx([0, 0, 1 / 3, 2 / 3, 1, 4 / 3, 5 / 3])
    assert moves[0][1] == "starting the workers"
    assert moves[-1][1] == "random, 2,560 elements, density 1"


def test_what_a_failed_worker_wrote_is_in_the_error() -> None:
    pytest.importorskip("torch")
    job = gloo_job(Case("blocks:256", 256, 1.0, 1, 0, 1), backends=("nccl",))
    with pytest.raises(WorkerFailed, match="backend 'nccl' is unknown"):
        run_all_reduce(job, Cluster(ranks=2), lambda *move: None)


@pytest.mark.parametrize("aggregators", ["0", "2"])
def test_the_command_writes_record_and_plot(tmp_path: Path, aggregators: str) -> None:
    pytest.importorskip("torch")
    record, plot = tmp_path / "record.json", tmp_path / "plot.png"
    options = "--ranks 2 --elements 5000 --density 0.2 --iterations 3 --warmup 1 --against gloo"
    files = ["--json", str(record), "--plot", str(plot), "--aggregators", aggregators]
    outcome = CliRunner().invoke(bench, ["all_reduce", *options.split(), *files])
    assert outcome.exit_code == 0, outcome.output
    (result,) = json.loads(record.read_text())["results"]
    assert result["share_mean"] == 0.2
    assert set(result["backends"]) == {"gloo", "sparsewire"}
    assert result["backends"]["sparsewire"]["counted_bytes_sent_per_rank"] > 0
    assert plot.exists()


@pytest.mark.parametrize(
    "extra",
    [
        "--precision int8,bfloat16 --result sparse --op avg",
        pytest.param("", marks=pytest.mark.exhaustive),
    ],
)
def test_sparse_input_is_measured_by_every_algorithm(tmp_path: Path, extra: str) -> None:
    pytest.importorskip("torch")
    record = tmp_path / "record.json"
    options = (
        "--ranks 2 --elements 20000 --density 0.3,0.01 --pattern random|zipf:1.1 --input sparse "
        "--algorithm auto,stream,allgather,ssar_recursive_double,ssar_split_allgather,ring "
        f"--against gloo,gloo-sparse --iterations 2 --warmup 1 {extra} --json {record}"
    )
    outcome = CliRunner().invoke(bench, ["all_reduce", *options.split()])
    assert outcome.exit_code == 0, outcome.output
    results = json.loads(record.read_text())["results"]
    assert len(results) == 4
    for result in results:
        auto = result["backends"]["sparsewire"]
        fixed = result["backends"][f"sparsewire/{auto['chosen']}"]
        assert auto["predicted_s"] == fixed["predicted_s"] > 0
        assert fixed["algorithm"] == auto["chosen"]
        assert all(measured["median_s"] > 0 for measured in result["backends"].values())
        assert result["backends"]["gloo-sparse"]["counted_bytes_sent_per_rank"] == pytest.approx(
            12 * round(result["density"] * 20000)
        )


@pytest.mark.parametrize(
    "options",
    [
        ["--hosts", "1"],
        ["--elements", "1", "--bytes", "4"],
        ["--pattern", "x"],
        ["--hosts", "2", "--link", "fast"],
        ["--transport", "xdp"],
        ["--loss", "0.01"],
        ["--hosts", "2", "--loss", "all"],
        ["--arithmetic", "fixed"],
    ],
)
def test_the_command_refuses_bad_options_in_words(options: list[str]) -> None:
    outcome = CliRunner().invoke(bench, ["all_reduce", *options])
    assert outcome.exit_code == 1
    assert "error: " in outcome.output


@pytest.mark.exhaustive
def test_sparse_tensors_are_measured_beside_sparse_vectors(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    record = tmp_path / "record.json"
    options = (
        "--ranks 2 --elements 20000 --density 0.05 --pattern random --input sparse --through both "
        f"--result sparse --against gloo --iterations 2 --warmup 1 --json {record}"
    )
    outcome = CliRunner().invoke(bench, ["all_reduce", *options.split()])
    assert outcome.exit_code == 0, outcome.output
    (result,) = json.loads(record.read_text())["results"]
    assert set(result["backends"]) == {"gloo", "sparsewire", "sparsewire-torch"}
    assert result["backends"]["sparsewire-torch"]["speedup_over_gloo"] > 0


@pytest.mark.lab
@pytest.mark.skipif(WHY_NOT is not None, reason=f"{WHY_NOT}")
@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    "extra",
    [
        "--aggregators 2",
        "--against gloo",
        pytest.param("--input sparse --through torch", marks=pytest.mark.exhaustive),
    ],
)
def test_several_ranks_a_host_are_checked_in_the_order_that_the_engine_adds(extra: str) -> None:
    """Host by host, or rank by rank where aggregators add: the worker checks the bits."""
    pytest.importorskip("torch")
    options = f"--hosts 2 --ranks 2 --elements 5000 --density 1 --iterations 2 --warmup 1 {extra}"
    outcome = CliRunner().invoke(bench, ["all_reduce", *options.split()])
    assert outcome.exit_code == 0, outcome.output


@pytest.mark.lab
@pytest.mark.skipif(WHY_NOT is not None, reason=f"{WHY_NOT}")
def test_aggregators_have_links_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    record = tmp_path / "record.json"
    options = (
        "--hosts 2 --link 100mbit --aggregators 1 --aggregator-link 400mbit --transport tcp "
        "--loss 0.1% --mtu 9000 --elements 100000 --density 1 --iterations 2 --warmup 1 "
        f"--against gloo --json {record}"
    )
    outcome = CliRunner().invoke(bench, ["all_reduce", *options.split()])
    assert outcome.exit_code == 0, outcome.output
    told = json.loads(record.read_text())
    cluster = {"aggregator_link": "400mbit", "transport": "tcp", "loss": 0.001, "mtu": 9000}
    assert {name: told["cluster"][name] for name in cluster} == cluster
    (result,) = told["results"]
    assert result["backends"]["sparsewire"]["limit_s"] == pytest.approx(400_000 * 8 / 1e8)
