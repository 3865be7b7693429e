"""The workloads of OmniReduce: their shapes and skew, replayed gradients, and the whole command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

import torch
from torch import nn

from sparsewire.tools.cli.main import app
from sparsewire.tools.training.trial import Averaging
from sparsewire.tools.training.workloads import deeplight, resnet, vgg
from sparsewire.tools.training.workloads.catalogue import WORKLOADS
from sparsewire.tools.training.workloads.measure import Replaying, density
from sparsewire.tools.training.workloads.recording import Recording, record
from sparsewire.tools.training.workloads.skew import power_law, scattered
from sparsewire.tools.training.workloads.workload import Job, Size

RANKS = 2
STEPS = 2
HERE = [name for name, each in WORKLOADS.items() if not each.needs or find_spec(each.needs)]
TABLES = ["deeplight", "lstm", "ncf"]


def job_of(name: str, size: Size = "tiny", sparse: bool = False) -> Job:
    torch.manual_seed(0)
    return WORKLOADS[name].make(WORKLOADS[name].sizes[size], sparse)


def gradients_of(job: Job, step: int = 0) -> list[torch.Tensor]:
    job.model.zero_grad()
    job.model(*job.batch_of(0, 0, step)).backward()
    return [p.grad.clone() for p in job.model.parameters()]


def parameters_of(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def workload(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["bench", "workload", *map(str, arguments)])


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("mode", "names"),
    [
        pytest.param("training", HERE, marks=pytest.mark.exhaustive),
        ("training", ["deeplight", "resnet152"]),
        ("gradients", ["lstm", "vgg19"]),
    ],
)
def test_workloads_run_over_each_method(mode: str, names: list[str], tmp_path: Path) -> None:
    outcome = workload(
        *("--name", ",".join(names), "--ranks", RANKS, "--size", "tiny", "--steps", STEPS),
        *("--mode", mode, "--compute", 3, "--json", tmp_path / "out.json"),
    )
    assert outcome.exit_code == 0, outcome.output
    found = json.loads((tmp_path / "out.json").read_text())["workloads"]
    assert [each["name"] for each in found] == names
    for each in found:
        gloo, ours, feedback = each["methods"]
        assert [len(method["steps"]["seconds"]) for method in each["methods"]] == [STEPS] * 3
        # Only a sparse gradient is worth less than a dense ring of two ranks, which sends it once.
        if each["name"] in TABLES:
            assert ours["sent_bytes"] < 0.5 * gloo["sent_bytes"]
        assert feedback["sent_bytes"] < 0.5 * gloo["sent_bytes"]
        shares = each["density"]
        assert 0 < shares["block"] <= shares["union_block"] <= 1
        # Of two ranks' blocks, those in both are counted twice.
        both = 2 * shares["block"] - shares["union_block"]
        assert shares["shared_block"] == pytest.approx(both / shares["block"], abs=0.05)
        if mode == "training":
            assert len(gloo["steps"]["losses"]) == STEPS + 2
            assert ours["steps"]["losses"] == pytest.approx(gloo["steps"]["losses"], rel=1e-6)
        else:
            assert min(ours["steps"]["seconds"]) > 0.003
            assert ours["steps"]["losses"] == []


@pytest.mark.timeout(180)
def test_sparse_gradients_of_tables(tmp_path: Path) -> None:
    # Of what is replayed, the methods for tables alone are new here.
    every, tables = "gloo,sparsewire,gloo-sparse,sparsewire-sparse", "gloo-sparse,sparsewire-sparse"
    for mode, names, methods in (
        ("training", "lstm,vgg19", every),
        ("gradients", "lstm", tables),
    ):
        outcome = workload(
            *("--name", names, "--ranks", RANKS, "--size", "tiny", "--steps", STEPS),
            *("--method", methods, "--mode", mode, "--json", tmp_path / f"{mode}.json"),
        )
        assert outcome.exit_code == 0, outcome.output
    found = json.loads((tmp_path / "training.json").read_text())["workloads"]
    names = [[method["method"] for method in each["methods"]] for each in found]
    assert names == [["gloo", "sparsewire", "gloo-sparse", "sparsewire-sparse"], names[0][:2]]
    first, *others = (method["steps"]["losses"] for method in found[0]["methods"])
    for losses in others:
        assert losses == pytest.approx(first, rel=1e-6)


@pytest.mark.exhaustive
@pytest.mark.timeout(180)
def test_trainings_tell_the_losses_of_what_compresses(tmp_path: Path) -> None:
    outcome = workload(
        *("--name", "ncf", "--ranks", RANKS, "--size", "tiny", "--steps", 1, "--mode", "gradients"),
        *("--train", 10, "--seeds", 2, "--json", tmp_path / "out.json"),
    )
    assert outcome.exit_code == 0, outcome.output
    (found,) = json.loads((tmp_path / "out.json").read_text())["workloads"]
    gloo, ours, feedback = (method["losses"] for method in found["methods"])
    assert ours is None
    assert gloo["steps"] == feedback["steps"] == 10
    assert gloo["over_first"] == [1, 1]
    assert len(set(gloo["final"])) == len(feedback["final"]) == 2
    for own, first, ratio in zip(
        feedback["final"], gloo["final"], feedback["over_first"], strict=True
    ):
        assert 0 < own != first
        assert ratio == pytest.approx(own / first)


@pytest.mark.exhaustive
@pytest.mark.timeout(180)
def test_ranks_find_dedicated_aggregators(tmp_path: Path) -> None:
    sent = {}
    for aggregators in (0, 1):
        outcome = workload(
            *(
                "--name",
                "lstm",
                "--ranks",
                4,
                "--size",
                "tiny",
                "--steps",
                1,
                "--mode",
                "gradients",
            ),
            *("--method", "sparsewire", "--aggregators", aggregators),
            *("--json", tmp_path / "out.json"),
        )
        assert outcome.exit_code == 0, outcome.output
        ((method,),) = (
            each["methods"] for each in json.loads((tmp_path / "out.json").read_text())["workloads"]
        )
        sent[aggregators] = method["sent_bytes"]
    # A rank sends its own non-zeros alone, and no sums of others'.
    assert 0 < sent[1] < 0.9 * sent[0]


@pytest.mark.timeout(180)
def test_script_trains_under_torchrun() -> None:
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("-m", "sparsewire.tools.training.workloads", "lstm", "--size", "tiny", "--steps", "8"),
    ]
    losses = []
    for backend in ("gloo", "sparsewire"):
        output = subprocess.run(
            [*command, "--backend", backend],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=150,
            check=True,
        ).stdout
        losses.append([line.split(",")[0] for line in output.splitlines()])
    assert losses[0] == losses[1]
    assert losses[0][-1].startswith("step 8: loss")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--name", "deeplight,chess"), "workload 'chess' is not known"),
        (("--name", "vgg19", "--method", "gloo-sparse"), "vgg19 has no tables with sparse"),
        (("--name", "lstm", "--method", "smoke-sparse"), "method 'smoke' is not known"),
        (("--name", "lstm", "--method", "gloo", "--train", "9"), "--train is for what compresses"),
    ],
)
def test_unknown_workloads_and_methods_are_refused(
    arguments: tuple[str, ...], problem: str
) -> None:
    outcome = workload(*arguments)
    assert outcome.exit_code == 1
    assert problem in outcome.output


@pytest.mark.parametrize("name", HERE)
def test_made_by_seed(name: str) -> None:
    torch.manual_seed(1)
    first, second = job_of(name), job_of(name)
    for mine, same in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(mine, same)
    same = zip(first.batch_of(5, 1, 3), second.batch_of(5, 1, 3), strict=True)
    assert all(torch.equal(*pair) for pair in same)
    for other in ((6, 1, 3), (5, 0, 3), (5, 1, 4)):
        pairs = zip(first.batch_of(5, 1, 3), second.batch_of(*other), strict=True)
        assert not all(torch.equal(*pair) for pair in pairs), other


@pytest.mark.parametrize("name", HERE)
def test_learns(name: str) -> None:
    job = job_of(name)
    job.model.train()
    batch = job.batch_of(0, 0, 0)
    optimizer = job.optimizer(job.model.parameters())
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = job.model(*batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert min(losses[6:]) < losses[0], losses


def test_networks_have_the_published_parameters() -> None:
    with torch.device("meta"):
        assert parameters_of(vgg.vgg19(1, 4096)) == 143_667_240
        assert parameters_of(resnet.resnet((3, 8, 36, 3), 64)) == 60_192_808


def shapes_of(name: str) -> list[tuple[int, ...]]:
    """Of the parameters at the published size, the largest first."""
    workload = WORKLOADS[name]
    with torch.device("meta"):
        model = workload.make(workload.sizes["published"], False).model
    return sorted((tuple(p.shape) for p in model.parameters()), key=np.prod, reverse=True)


def test_ncf_is_that_of_the_run() -> None:
    """`-f 64 --layers 256 256 128 64 -b 1048576`, 4 times the users and 16 times the items."""
    users, items = 498_975, 427_888
    found = shapes_of("ncf")
    assert found[:4] == [(users, 128), (items, 128), (users, 64), (items, 64)]
    assert [shape for shape in found[4:] if len(shape) == 2] == [
        *((256, 256), (128, 256), (64, 128), (1, 128)),
    ]
    assert WORKLOADS["ncf"].sizes["published"].batch == 2**20
    assert WORKLOADS["ncf-shared"].sizes["published"].batch == 2**20 // 8


def test_lstm_is_that_of_the_run() -> None:
    """One layer of 2048 with a projection of 256, tables that are not tied, 64 x 8 sequences."""
    words = 793_471
    found = shapes_of("lstm")
    assert found[:2] == [(words, 256), (words, 256)]
    matrices = [shape for shape in found[2:] if len(shape) == 2]
    # Four gates, from what comes in and from what was; the projection; the outputs' biases.
    assert sorted(matrices) == [(256, 2048), (8192, 256), (8192, 2048), (words, 1)]
    shape = WORKLOADS["lstm"].sizes["published"]
    assert (shape.batch, shape.length, shape.negatives) == (512, 20, 8192)


@pytest.mark.parametrize("name", ["lstm", "ncf", "ncf-shared"])
def test_scaled_tables_have_rows_as_wide(name: str) -> None:
    sizes = WORKLOADS[name].sizes
    assert sizes["here"].width == sizes["published"].width
    parameters = parameters_of(job_of(name, "here").model)
    with torch.device("meta"):
        published = parameters_of(WORKLOADS[name].make(sizes["published"], False).model)
    share = sizes["here"].batch / sizes["published"].batch
    assert parameters == pytest.approx(share * published, rel=0.01)


@pytest.mark.usefixtures("group_of_one")
def test_a_rank_alone_shares_nothing() -> None:
    job, recording = recording_of("lstm")
    found = density(zip(job.model.parameters(), recording.steps[0], strict=True))
    assert found.shared_block == found.shared_element == 0
    assert found.union_block == found.block > 0


def test_fields_fill_the_table() -> None:
    for rows in (20_000, 60_747_983):
        fields = deeplight.field_rows(rows)
        assert sum(fields) == rows
        assert len(fields) == 39
        assert min(fields) >= 3


@pytest.mark.parametrize("exponent", [0.5, 1, 1.05])
def test_numbers_follow_their_law(exponent: float) -> None:
    count, drawn = 50, 200_000
    found = np.bincount(
        power_law(np.random.default_rng(1), count, exponent, drawn), minlength=count
    )
    edges = np.arange(1, count + 2, dtype=np.float64)
    within = np.log(edges) if exponent == 1 else (edges ** (1 - exponent)) / (1 - exponent)
    expected = drawn * np.diff(within) / (within[-1] - within[0])
    assert len(found) == count
    assert np.abs(found - expected).max() < 6 * np.sqrt(expected.max())


def test_scattered_numbers_are_all_there() -> None:
    for count in (3, 40, 3000):
        names = scattered(np.arange(count), count)
        assert sorted(names) == list(range(count))


def recording_of(name: str, sparse: bool = False) -> tuple[Job, Recording]:
    job = job_of(name, sparse=sparse)
    return job, record(job, seed=0, rank=0, steps=2)


@pytest.mark.usefixtures("group_of_one")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", ["lstm", "vgg19"])
def test_replayed_gradients_are_those_of_the_steps(name: str, sparse: bool) -> None:
    torch.manual_seed(3)
    job, recording = recording_of(name, sparse)
    assert sorted(place for place, _ in recording.ready) == list(range(len(recording.steps[0])))
    shares = [share for _, share in recording.ready]
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 1
    replaying = Replaying(job, recording, Averaging.parse("gloo"), compute_s=0.0)
    for number in range(5):
        replaying.prepare(number)
        replaying.step(number)
        for parameter, kept in zip(
            job.model.parameters(), recording.steps[number % 2], strict=True
        ):
            wanted = kept.fresh(parameter).detach().to_dense()
            assert torch.equal(parameter.grad.to_dense(), wanted), number


def test_recorded_gradients_are_those_of_the_model() -> None:
    job, recording = recording_of("lstm")
    for step, kept in enumerate(recording.steps):
        for parameter, own, wanted in zip(
            job.model.parameters(), kept, gradients_of(job, step), strict=True
        ):
            assert torch.equal(own.fresh(parameter).detach(), wanted)
