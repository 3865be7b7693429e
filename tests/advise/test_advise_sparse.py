"""Tables with `sparse=True`: what it saves is left out of steps, over gloo and over sparsewire."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from recordings import FORWARD_S, READY_S, WAITED_S, recorded, saved

from sparsewire.profile.records.recorded import (
    Cost,
    Memory,
    Optimizer,
    RankProfile,
    Recorded,
    Rehearsal,
    Span,
)
from sparsewire.tools.advise.answer import Gain, Model, Row, gain
from sparsewire.tools.advise.prediction import costs
from sparsewire.tools.advise.prediction.density import Overlap
from sparsewire.tools.advise.prediction.gradient import Gradient
from sparsewire.tools.advise.prediction.network import Network
from sparsewire.tools.advise.prediction.replay import step_s
from sparsewire.tools.advise.prediction.rows import RowCosts
from sparsewire.tools.advise.prediction.shared import Stolen, recorded_crowd
from sparsewire.tools.advise.prediction.timeline import Pass
from sparsewire.tools.advise.prediction.transfers import Transfer, engine, feedback, ring
from sparsewire.tools.cli.main import app

FOUR = Network(1.0, 4)
SPAN_S, OPTIMIZER_S = 0.02, 0.02
COALESCE, UPDATE = Cost(1e-4, 1e-7), Cost(2e-4, 1e-6)


def changed(profile: Recorded, **fields: Any) -> Recorded:
    return Recorded([replace(rank, **fields) for rank in profile.ranks])


def told(table: str = "Embedding", optimizer: str = "Adam", backend: str = "gloo") -> Recorded:
    """As `sparsewire profile` records it now: the table's part of each step is told."""

    def rank(each: RankProfile) -> RankProfile:
        steps = [
            replace(
                step,
                tables=[Span(0, READY_S[1] - SPAN_S, READY_S[1])],
                optimizer_begin_s=WAITED_S,
                optimizer_s=OPTIMIZER_S,
                parameters=[
                    replace(d, row_density=0.003, union_row_density=0.01) if d.parameter == 0 else d
                    for d in step.parameters
                ],
            )
            for step in each.steps
        ]
        embedding, layer = each.parameters
        return replace(
            each,
            steps=steps,
            parameters=[replace(embedding, table=table), layer],
            optimizers=[Optimizer(optimizer, [0, 1])],
            machine=f"machine{each.rank}",
            cores=2,
            memory=Memory(1e-10, 1e-9, 0.0),
            rehearsals=[Rehearsal(0, "SparseAdam", COALESCE, UPDATE)],
        )

    return Recorded([rank(each) for each in recorded(backend=backend).ranks])


def test_what_a_table_took_is_left_out() -> None:
    model = Model(told(), FOUR)
    sparse = next(m for m in model.methods if m.name == "gloo-sparse")
    share = 20_000 * 64 / (20_000 * 64 + 512 * 512)
    updated = UPDATE.of(0.01 * 20_000)
    expected = FORWARD_S + READY_S[1] - SPAN_S - share * OPTIMIZER_S + updated
    assert model.timeline_for(sparse).passes[0].end == pytest.approx(expected)
    assert model.computed_s == pytest.approx(FORWARD_S + READY_S[1])


def test_rows_of_unions_are_those_recorded() -> None:
    model = Model(told(), FOUR)
    table = model.timeline_for(model.methods[1]).gradients[1]
    assert table.rows(1) == pytest.approx(0.003 * 20_000)
    assert table.rows(4) == pytest.approx(0.01 * 20_000)
    assert table.rows(4) < table.rows(16) < 16 * table.rows(1)


def sparse_rows(growth: float = 1.0) -> Gradient:
    rows = Overlap(Overlap.of(0.01, None, 1).one, growth)
    taken = RowCosts("SparseAdam", COALESCE, UPDATE, is_rehearsed=True)
    return Gradient(100e6, 4, rows, rows, (25_000_000,), row_bytes=256, row_costs=taken)


def test_gloo_gives_all_rows_to_all_and_each_sorts_them() -> None:
    gradient, fast = sparse_rows(), Network(1e15, 4)
    rows = gradient.rows(1)
    found = ring(gradient, fast)
    assert found.bytes == pytest.approx(3 * rows * (256 + costs.INDEX_BYTES))
    work = COALESCE.of(rows) + COALESCE.of(4 * rows) + found.bytes * costs.GLOO_BYTE_S
    assert found.seconds == pytest.approx(work + 9 * costs.GLOO_HOP_S)


def test_with_more_hosts_gloo_falls_behind() -> None:
    def ratio(hosts: int) -> float:
        network = Network(1e9, hosts)
        same = sparse_rows(growth=0.0)
        return ring(same, network).seconds / engine(same, network).seconds

    assert ratio(16) > ratio(8) > ratio(4) > 1


def test_long_messages_to_all_wait_for_one_link() -> None:
    def wire_s(payload: float) -> float:
        dense = Overlap(50.0, 1.0)
        whole = Gradient(payload, 4, dense, dense, (int(payload) // 4,))
        slow, fast = (feedback(whole, Network(bits, 4)).seconds for bits in (1e6, 1e15))
        return (slow - fast) / feedback(whole, Network(1e6, 4)).bytes

    short, long, longer = (
        wire_s(8 * message * 4 / costs.FEEDBACK_BITS)
        for message in (0.5 * costs.BUFFERED_BYTES, 1.5 * costs.BUFFERED_BYTES, 1e7)
    )
    assert long == pytest.approx(2 * short, rel=0.05)
    assert longer == pytest.approx(4 * short, rel=0.05)


def test_a_recording_with_sparse_tables_compares_like_with_like() -> None:
    dense = told()
    embedding, layer = dense.ranks[0].parameters
    found = Model(changed(dense, parameters=[replace(embedding, sparse=True), layer]), FOUR)
    assert [m.name for m in found.methods] == ["gloo-sparse", "sparse", "feedback", "diana"]
    table = found.timeline.gradients[1]
    assert (table.row_bytes, table.rows(4)) == (256, pytest.approx(0.01 * 20_000))
    assert found.computed_s == pytest.approx(FORWARD_S + READY_S[1])


def advised(directory: Path, profile: Recorded, *options: str) -> dict[str, Any]:
    arguments = ["advise", str(saved(directory, profile)), "--json", *options]
    found: dict[str, Any] = json.loads(CliRunner().invoke(app, arguments).output)
    return found


@pytest.mark.parametrize(
    ("optimizer", "line"),
    [
        ("Adam", "torch.optim.SparseAdam for these tables, as Adam takes no sparse ones"),
        ("AdamW", "torch.optim.SparseAdam for these tables, as AdamW takes no sparse ones"),
        ("Adagrad", "Adagrad takes sparse gradients as it is"),
        ("SGD", "SGD takes sparse gradients, without momentum"),
    ],
)
def test_lines_name_the_class_and_the_optimizer(tmp_path: Path, optimizer: str, line: str) -> None:
    found = advised(tmp_path, told("EmbeddingBag", optimizer), "--link", "10mbit")
    lines = found["lines"]["gloo-sparse"]
    assert "nn.EmbeddingBag(..., sparse=True)  # embedding.weight" in lines
    assert any(line in each for each in lines)


def test_a_path_that_never_ran_on_a_gpu_is_not_called_good(tmp_path: Path) -> None:
    found = advised(tmp_path, told(backend="nccl"), "--link", "10mbit")
    (link,) = found["links"]
    assert [row["method"] for row in link["methods"]][:3] == ["nccl", "sparsewire", "sparse"]
    assert "it pays" not in link["verdict"]
    assert "never ran on a GPU" in link["verdict"]
    assert all("SPARSEWIRE_CUDA=engine" in lines[0] for lines in found["lines"].values())


def test_hosts_and_ranks_mean_what_they_mean_in_the_lab(tmp_path: Path) -> None:
    several = changed(told(), local_world_size=2)
    for options, expected in (
        ([], (4, 1)), (["--hosts", "8"], (8, 1)), (["--ranks", "2"], (2, 2)),
    ):  # fmt: skip
        found = advised(tmp_path, several, *options)
        assert (found["hosts"], found["ranks"]) == expected


def test_computing_takes_longer_on_fewer_processors() -> None:
    alone, crowded = (Model(told(), Network(1.0, 4, cores=cores)) for cores in (None, 2))
    assert recorded_crowd(told()) == 1
    assert crowded.computed_s == pytest.approx(2 * alone.computed_s)
    shared = changed(told(), machine="one")
    assert recorded_crowd(shared) == 2
    assert Model(shared, Network(1.0, 4, cores=2)).computing == 1


def test_gloo_is_not_charged_for_what_it_took_of_the_backward_pass() -> None:
    shared = changed(told(), machine="one")
    step = shared.ranks[0].steps[1]
    layer = step.buckets[0]
    meanwhile = READY_S[1] - READY_S[0]
    taken = 1.5 * layer.bytes * costs.GLOO_BYTE_S * 2 * meanwhile / (WAITED_S - READY_S[0])
    assert Stolen(shared).before(step, READY_S[1]) == pytest.approx(taken)
    assert Stolen(told()).before(step, READY_S[1]) == 0


def test_what_is_sent_takes_from_what_is_computed() -> None:
    one = Pass((1.0, 2.0), 4.0)
    assert step_s(one, [Transfer(0, 2.0, stolen_s=1.0), Transfer(0, 0.0)]) == pytest.approx(5.0)
    assert step_s(one, [Transfer(0, 2.0), Transfer(0, 0.0)]) == 4.0


@pytest.mark.parametrize(
    ("ours", "found"),
    [
        ((0.5, 0.4, 0.6), Gain.pays),
        ((0.8, 0.7, 0.95), Gain.may_pay),
        ((0.98, 0.9, 1.1), Gain.alike),
        ((1.2, 1.1, 1.3), Gain.loses),
    ],
)
def test_it_pays_only_where_ranges_lie_apart(ours: tuple[float, float, float], found: Gain) -> None:
    method = Model(recorded(), FOUR).methods[0]

    def row(step: float, low: float, high: float) -> Row:
        return Row(method, step, low, high, 0.0, 1.0)

    assert gain(row(*ours), row(1.0, 0.9, 1.1)) is found
