"""What is made of a profile: the timeline, its replay, embeddings, and the best method."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import (
    FORWARD_S,
    LAYER_SIZE,
    READY_S,
    TABLE_SIZE,
    WAITED_S,
    recorded,
)

from sparsewire.errors import InputError
from sparsewire.profile.records.recorded import Recorded
from sparsewire.tools.advise.answer import Model, answer
from sparsewire.tools.advise.prediction.network import Network
from sparsewire.tools.advise.prediction.replay import spans, step_s
from sparsewire.tools.advise.prediction.timeline import Pass, timeline_of
from sparsewire.tools.advise.prediction.transfers import Transfer

FOUR = Network(1.0, 4)


def test_buckets_are_ready_when_the_last_rank_is() -> None:
    profile = recorded(ranks=2)
    late = replace(profile.ranks[1], steps=[
        replace(step, duration_s=step.duration_s + 0.1) for step in profile.ranks[1].steps
    ])  # fmt: skip
    timeline = timeline_of(Recorded([profile.ranks[0], late]))
    ready = tuple(FORWARD_S + 0.1 + at for at in READY_S)
    assert timeline.passes[0].ready == pytest.approx(ready)
    assert timeline.passes[0].end == pytest.approx(ready[-1])


def test_sampled_steps_are_left_out_of_times() -> None:
    assert len(timeline_of(recorded(steps=12)).passes) == 8
    assert len(timeline_of(recorded(steps=1)).passes) == 1


def test_steps_of_the_first_buckets_are_left_out() -> None:
    profile = recorded(ranks=1)
    first, *others = profile.ranks[0].steps
    first = replace(first, buckets=first.buckets[:1])
    steps = timeline_of(Recorded([replace(profile.ranks[0], steps=[first, *others])]))
    assert len(steps.passes) == 8
    assert len(steps.gradients) == 2


def test_what_follows_the_last_transfer_counts() -> None:
    profile = recorded(ranks=1)
    longer = [
        replace(step, backward_s=0.3, duration_s=0.3 + FORWARD_S) for step in profile.ranks[0].steps
    ]
    timeline = timeline_of(Recorded([replace(profile.ranks[0], steps=longer)]))
    assert timeline.passes[0].end == pytest.approx(0.3 + FORWARD_S - WAITED_S + READY_S[-1])


def test_without_densities_or_steps_it_says_so() -> None:
    blind = recorded(ranks=1, steps=3)
    steps = [step for step in blind.ranks[0].steps if not step.sampled]
    with pytest.raises(InputError, match="densities"):
        timeline_of(Recorded([replace(blind.ranks[0], steps=steps)]))
    with pytest.raises(InputError, match="no step"):
        timeline_of(Recorded([replace(blind.ranks[0], steps=[])]))


def test_buckets_go_one_by_one() -> None:
    recorded_pass = Pass((1.0, 2.0, 9.0), 10.0)
    transfers = [Transfer(0, 3.0), Transfer(0, 3.0, hook_s=1.0), Transfer(0, 2.0)]
    assert spans(recorded_pass, transfers) == [(1.0, 4.0), (4.0, 7.0), (10.0, 12.0)]
    assert step_s(recorded_pass, transfers) == 12.0
    assert step_s(recorded_pass, [Transfer(0, 0.0)] * 3) == 10.0


def test_tables_go_by_themselves() -> None:
    model = Model(recorded(), FOUR)
    assert [table.name for table in model.tables] == ["embedding.weight"]
    sparse = model.methods[3]
    assert sparse.name == "sparse"
    parts = model.timeline_for(sparse).gradients
    assert [part.row_bytes for part in parts] == [None, 256]
    assert [part.count for part in parts] == [LAYER_SIZE, TABLE_SIZE]
    assert parts[1].elements.union(1) == pytest.approx(0.003)


def test_a_table_in_one_bucket_with_a_layer_leaves_the_layer() -> None:
    profile = recorded(ranks=1, union=None)
    joined = []
    for step in profile.ranks[0].steps:
        layer, table = step.buckets
        both = replace(
            table, bucket=0, parameters=[1, 0], elements=table.elements + layer.elements,
            bytes=table.bytes + layer.bytes,
        )  # fmt: skip
        if step.sampled:
            share = LAYER_SIZE / (LAYER_SIZE + TABLE_SIZE)
            both = replace(
                both,
                element_density=share + (1 - share) * 0.003,
                block_density=share + (1 - share) * (1 - 0.997**4),
            )
        joined.append(replace(step, buckets=[both]))
    model = Model(Recorded([replace(profile.ranks[0], steps=joined)]), FOUR)
    table, rest = model.timeline_for(model.methods[3]).gradients
    assert (table.count, rest.count) == (TABLE_SIZE, LAYER_SIZE)
    assert rest.blocks.union(1) == pytest.approx(1)
    assert rest.parameters == (LAYER_SIZE,)


def test_dense_models_are_not_promised_anything() -> None:
    found = answer(recorded(density=1.0, union=1.0), FOUR, [1e8, 1e9, 1e10])
    for link in found.links:
        assert link.lossless is link.plain
        ours = next(row for row in link.rows if row.method.name == "sparsewire")
        assert 0.95 < ours.speedup < 1.05
    assert found.curves[0].break_even == 0


def test_sparse_models_gain_on_slow_links() -> None:
    slow, fast = answer(recorded(), FOUR, [1e7, 1e9]).links
    assert slow.lossless.speedup > fast.lossless.speedup > 1.05
    assert slow.lossy is not None
    assert slow.fastest.method.name == "feedback"


def test_break_even_is_where_it_stops_to_pay() -> None:
    model = Model(recorded(), FOUR)
    curve = model.curve(model.methods[-1])
    assert curve.break_even
    assert model.speedup(curve.method, curve.break_even) >= 1.05
    assert model.speedup(curve.method, curve.break_even * 1.02) < 1.05


@pytest.mark.parametrize("asked", [4, 8])
def test_the_range_holds_the_prediction_and_grows_with_doubt(asked: int) -> None:
    def width(recorded_ranks: int) -> float:
        model = Model(recorded(ranks=recorded_ranks), Network(1.0, asked))
        row = model.on_link(1e8).rows[2]
        assert row.low_s <= row.step_s <= row.high_s
        return row.high_s / row.low_s

    assert width(1) > width(asked)


@given(st.floats(1e6, 1e12), st.floats(1, 100))
def test_steps_never_get_longer_with_bandwidth(bits_s: float, factor: float) -> None:
    model = Model(recorded(ranks=2, steps=4), FOUR)
    for method in model.methods:
        faster, slower = model.median_s(method, bits_s * factor), model.median_s(method, bits_s)
        assert faster <= slower * (1 + 1e-9)
        if not method.splits:
            assert faster >= model.computed_s


def test_what_was_recorded_is_what_comes_back() -> None:
    """The recorded wait is that of a link; on such a one, gloo's step is predicted as recorded."""
    model = Model(recorded(), FOUR)
    payload = 4 * (LAYER_SIZE + TABLE_SIZE)
    bits_s = 1.5 * payload * 1.045 * 8 / (WAITED_S - READY_S[0])
    assert model.median_s(model.methods[0], bits_s) == pytest.approx(FORWARD_S + WAITED_S, rel=0.03)
