"""`sparsewire bench outer`: text and model, the tuning rule, what is found, a whole short run."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from sparsewire.errors import ExperimentError
from sparsewire.tools.cli.main import app
from sparsewire.tools.lab import available
from sparsewire.tools.training.outer.findings import first_step_at
from sparsewire.tools.training.outer.gpt import GPT, Shape
from sparsewire.tools.training.outer.methods import METHODS
from sparsewire.tools.training.outer.order import Order, Setting, read
from sparsewire.tools.training.outer.text import HELD_OUT, WINDOWS, Text, save_characters
from sparsewire.tools.training.outer.trainee import share_of_rate
from sparsewire.tools.training.outer.tuning import FURTHER, tune_all

WHY_NOT = available()
TINY = Shape(layers=1, width=16, heads=4, context=8, batch=2)
LETTERS = "abcdefgh "


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A text of letters at random."""
    draws = np.random.default_rng(0)
    file = tmp_path / "text.txt"
    file.write_text("".join(draws.choice([*LETTERS], 20_000)))
    return file


def text_of(written: Path) -> Text:
    file = written.with_suffix(".npy")
    save_characters(written, file)
    return Text(np.load(file), TINY.context)


def test_characters_are_numbered_without_gaps(written: Path) -> None:
    text = text_of(written)
    assert sorted(set(text.numbers.tolist())) == [*range(len(LETTERS))]
    assert text.vocabulary == len(LETTERS)


def test_a_text_that_is_too_short_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "short.txt"
    file.write_text("a few words")
    with pytest.raises(ExperimentError, match="longer text"):
        save_characters(file, tmp_path / "short.npy")


def test_what_follows_is_shifted_by_one(written: Path) -> None:
    text = text_of(written)
    batches = [text.draw(3, np.random.default_rng(0)), *text.held_out(16, 0, 2)]
    for before, after in batches:
        assert torch.equal(before[:, 1:], after[:, :-1])
        assert before.shape[1] == TINY.context


def test_ranks_share_what_is_held_out_and_never_draw_it(written: Path) -> None:
    text = text_of(written)
    parts = [[*text.held_out(16, rank, 3)] for rank in range(3)]
    assert sum(len(read) for part in parts for read, _ in part) == WINDOWS
    places = Text(np.arange(9000), TINY.context)  # Characters that tell where they are.
    bound = int(len(places.numbers) * (1 - HELD_OUT))
    drawn = places.draw(5000, np.random.default_rng(1))
    assert int(drawn[1].max()) < bound
    assert min(int(read.min()) for read, _ in places.held_out(16, 0, 1)) >= bound


def test_a_new_model_knows_nothing_and_sees_no_future() -> None:
    torch.manual_seed(0)
    model = GPT(9, TINY)
    read, following = torch.randint(9, (2, 64, TINY.context))
    assert model(read, following).item() == pytest.approx(math.log(9), rel=0.05)
    changed = read.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 9
    hidden = [model.blocks(model.characters(each)) for each in (read, changed)]
    assert torch.allclose(hidden[0][:, :-1], hidden[1][:, :-1], atol=1e-6)
    assert not torch.allclose(hidden[0][:, -1], hidden[1][:, -1], atol=1e-3)


def test_a_setting_and_its_orders_survive_the_command_line() -> None:
    setting = Setting("characters.npy", "start.npy", TINY, 10)
    orders = [Order("diloco", 1e-3, 0.7, 3, 20, 60), Order("ddp-gloo", 2e-3, None, 0, 5, 5, 0.01)]
    assert read(setting.argument(orders)) == (setting, orders)


def test_the_rate_rises_and_falls_to_a_tenth() -> None:
    share = share_of_rate(600)
    rates = [share(step) for step in range(600)]
    peak = rates.index(max(rates))
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[-1] == pytest.approx(0.1, rel=0.01)


def valley(best: float, best_outer: float = 1.0) -> object:
    """Losses that are least at two rates, each by its own."""

    def train(orders: list[Order]) -> list[float]:
        return [
            abs(math.log2(order.rate / best))
            + abs(math.log2((order.outer_rate or best_outer) / best_outer))
            for order in orders
        ]

    return train


@given(st.integers(-2, 4))
def test_tuning_finds_a_best_rate_within_reach(power: int) -> None:
    method = METHODS["ddp-gloo"]
    best = method.rates[0] * 2.0**power
    (tuned,) = tune_all([method], 10, valley(best))  # type: ignore[arg-type]
    assert tuned.best.rate == pytest.approx(best)
    assert len(tuned.tried) <= len(method.rates) + FURTHER
    assert {order.steps for order, _ in tuned.tried} == {10}


def test_tuning_ends_beyond_its_reach() -> None:
    method = METHODS["ddp-gloo"]
    (tuned,) = tune_all([method], 10, valley(1e3))  # type: ignore[arg-type]
    assert tuned.best.rate == pytest.approx(method.rates[-1] * 2**FURTHER)


def test_the_inner_rate_is_tuned_at_the_best_outer_one() -> None:
    method = METHODS["diloco"]
    inner, outer = method.rates[0], method.outer_rates[0]
    (tuned,) = tune_all([method], 10, valley(inner, outer))  # type: ignore[arg-type]
    assert (tuned.best.rate, tuned.best.outer_rate) == pytest.approx((inner, outer))
    middle = method.rates[1]
    assert {order.outer_rate for order, _ in tuned.tried if order.rate != middle} == {outer}


def test_methods_are_tuned_apart_and_in_few_batches() -> None:
    batches: list[int] = []

    def train(orders: list[Order]) -> list[float]:
        batches.append(len(orders))
        return [abs(math.log2(order.rate / best_rate(order.method))) for order in orders]

    def best_rate(name: str) -> float:
        return METHODS[name].rates[1 if name == "ddp-gloo" else 0]

    tuned = tune_all([METHODS["ddp-gloo"], METHODS["ddp-top-k"]], 10, train)
    assert [each.best.rate for each in tuned] == [*map(best_rate, ("ddp-gloo", "ddp-top-k"))]
    # The second one's best is at the end, so that it tries one more.
    assert batches == [6, 1]


def test_without_trials_rates_are_those_in_the_middle() -> None:
    (tuned,) = tune_all([METHODS["diloco"]], 0, lambda orders: [])
    method = METHODS["diloco"]
    assert (tuned.best.rate, tuned.best.outer_rate) == (method.rates[1], method.outer_rates[1])
    assert not tuned.tried


@given(st.lists(st.floats(0.1, 9), min_size=2, max_size=8), st.floats(0.1, 9))
def test_the_first_step_at_a_loss_lies_on_the_line(losses: list[float], target: float) -> None:
    steps = [*range(0, 10 * len(losses), 10)]
    step = first_step_at(target, steps, losses)
    if min(losses) > target:
        assert step is None
    else:
        assert step is not None
        before = [float(np.interp(share * step, steps, losses)) for share in (0.1, 0.5, 0.9)]
        assert float(np.interp(step, steps, losses)) <= target + 1e-9
        assert step == 0 or all(loss > target - 1e-9 for loss in before)


@pytest.mark.parametrize(
    "arguments",
    [("--method", "no-such"), ("--link", "fast"), ("--method", "ddp-gloo:1,diloco:2")],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, str]) -> None:
    outcome = CliRunner().invoke(app, ["bench", "outer", *arguments])
    assert outcome.exit_code != 0
    assert isinstance(outcome.exception, SystemExit)


@pytest.mark.lab
@pytest.mark.skipif(WHY_NOT is not None, reason=f"{WHY_NOT}")
@pytest.mark.timeout(240)
def test_a_whole_short_run_counts_bytes(written: Path, tmp_path: Path) -> None:
    outcome = CliRunner().invoke(
        app,
        [
            *("bench", "outer", "--method", "ddp-gloo,local_sgd", "--hosts", "2", "--seeds", "1"),
            *("--link", "1gbit", "--steps", "30", "--between", "15", "--tuning-steps", "0"),
            *(
                "--longer-steps",
                "45",
                "--longer-seeds",
                "1",
                "--pretraining",
                "2",
                "--layers",
                "1",
                "--width",
                "16",
                "--context",
                "8",
            ),
            *("--compute", "1", "--text", str(written), "--folder", str(tmp_path / "kept")),
            *("--json", str(tmp_path / "out.json"), "--plot", str(tmp_path / "out.png")),
        ],
    )
    assert outcome.exit_code == 0, outcome.output
    told = json.loads((tmp_path / "out.json").read_text())
    dense, local = told["outer"]
    # A ring of two sends each gradient once, and so does a round; headers come on top.
    whole = 4 * dense["parameters"]
    assert 30 * whole < dense["up"] < 1.5 * 30 * whole
    assert whole < local["up"] < 2 * whole
    assert dense["whole"]["loss_shares"] == [1.0]
    assert dense["longer"] is None
    assert 0.9 < local["whole"]["loss_shares"][0] < 1.1
    assert local["longer"]["steps"] == 45
    assert dense["reached"]["1gbit"]["step_s"] > 1e-3
    assert (tmp_path / "out.png").stat().st_size > 10_000


def test_orders_differ_where_anything_does() -> None:
    order = Order("diloco", 1e-3, 0.7, 3, 20, 60)
    assert len({order, replace(order, seed=4), replace(order, compute_s=1.0), replace(order)}) == 3
