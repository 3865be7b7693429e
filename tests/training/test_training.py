"""`sparsewire bench training`: networks learn, averagings are compared, what is sent is counted."""

from __future__ import annotations

import json
import random
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("sklearn")

import torch

from sparsewire.errors import LabError
from sparsewire.tools.cli.main import app
from sparsewire.tools.training import comparison, digits
from sparsewire.tools.training.comparison import Comparison, findings, losses
from sparsewire.tools.training.digits import NOISE, SIDE, distorted
from sparsewire.tools.training.run import Trained
from sparsewire.tools.training.trial import Averaging
from sparsewire.tools.training.worker import rate_at

RANKS = 2
STEPS = 24
LEARNING_STEPS = 60
METHODS = ["gloo", "feedback/block-top-k:0.1:64", "diana/qsgd:7"]


def bench_training(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["bench", "training", *map(str, arguments)])


def write_text(file: Path) -> None:
    """Each word of a short list has one that follows it more often than any other."""
    chance = random.Random(0)
    words = [f"w{number}" for number in range(50)]
    number, text = 0, []
    for _ in range(45_000):
        number = (number * 7 + 1) % 50 if chance.random() < 0.8 else chance.randrange(50)
        text.append(words[number])
    file.write_text(" ".join(text))


def record_of(
    folder: Path, task: str, steps: int, methods: list[str], *arguments: object
) -> dict[str, Any]:
    """What a short run of the command writes."""
    outcome = bench_training(
        *("--task", task, "--method", ",".join(methods), "--ranks", RANKS, "--steps", steps),
        *("--json", folder / "out.json", "--plot", folder / "out.png", *arguments),
    )
    assert outcome.exit_code == 0, outcome.output
    for method in methods:
        assert method.split("/")[0] in outcome.output
    assert (folder / "out.png").stat().st_size > 10_000
    written: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return written


def assert_every_step(shares: list[float], least: float, most: float) -> None:
    """Check what each step sends; the end of one may be counted with the next."""
    for steps, total in enumerate(accumulate(shares), 1):
        assert least * (steps - 1) < total < most * steps, shares


@pytest.mark.timeout(300)
def test_methods_are_compared(tmp_path: Path) -> None:
    record = record_of(tmp_path, "digits", STEPS, METHODS, "--warmup", 0)
    runs = record["trained"]
    assert [run["method"] for run in runs] == METHODS
    for run in runs:
        assert len(run["losses"]) == len(run["step_s"]) == STEPS
        assert min(run["step_s"]) > 0
    assert len({run["held_out"][0][1] for run in runs}) == 1
    assert len({run["losses"][0] for run in runs}) == 1
    assert len({run["losses"][-1] for run in runs}) == len(METHODS)

    assert [run["counted_by"] for run in runs] == ["computed", "sparsewire", "sparsewire"]
    ring, feedback, diana = ([sent / run["parameters"] / 4 for sent in run["sent"]] for run in runs)
    assert ring == [2 * (RANKS - 1) / RANKS] * STEPS
    # With two ranks, each sends its message once: a tenth of the blocks; less than four bits for
    # each element, and not nothing.
    assert_every_step(feedback, 0.1, 0.13)
    assert_every_step(diana, 0.005, 0.125)

    first, *others = record["findings"]
    assert first["loss_ratio"] == first["fewer_bytes"] == first["speed_up"] == 1
    for finding in others:
        assert finding["fewer_bytes"] > 5
        assert finding["timed_sent"] is None


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_language_model_learns_after_a_warm_up(tmp_path: Path) -> None:
    write_text(tmp_path / "text")
    arguments = ("--warmup", 4, "--text", tmp_path / "text")
    runs = record_of(tmp_path, "lstm", LEARNING_STEPS, METHODS, *arguments)["trained"]
    for run in runs:
        assert len(run["losses"]) == len(run["step_s"]) == LEARNING_STEPS
        assert sum(run["losses"][-5:]) < 0.95 * sum(run["losses"][:5]), run["losses"]
        assert run["held_out"][-1][1] < 0.95 * run["held_out"][0][1], run["held_out"]
    # The end of the warm-up may be counted with the step behind it.
    sent = runs[1]["sent"]
    assert sum(sent[:5]) / 5 > 5 * max(sent[5:]), sent


def run_of(averaging: str, seed: int, loss: float, step_s: float, sent: float) -> Trained:
    return Trained(
        task="lstm",
        averaging=averaging,
        seed=seed,
        warmup=0,
        parameters=1000,
        losses=[9.0] * 19 + [loss],
        held_out=[(0, 9.0), (20, loss + 1)],
        step_s=[100.0] * 3 + [step_s] * 17,
        sent=[sent] * 20,
        counted_by="sparsewire",
        density_sum={},
    )


def test_ratios_are_of_means_over_seeds() -> None:
    trained = [
        run_of("gloo", 0, 2.0, 1.0, 100.0),
        run_of("diana/qsgd:7", 0, 2.2, 0.5, 10.0),
        run_of("gloo", 1, 4.0, 1.0, 100.0),
        run_of("diana/qsgd:7", 1, 4.1, 0.5, 30.0),
    ]
    timed = [run_of("gloo", 0, 5.0, 3.0, 110.0), run_of("diana/qsgd:7", 0, 5.0, 0.3, 12.0)]
    _, finding = findings(Comparison(2, "100mbit", None, trained, timed))
    assert finding.final_loss == pytest.approx(3.15)
    assert finding.loss_ratio == pytest.approx(3.15 / 3)
    assert finding.held_out_ratio == pytest.approx(4.15 / 4)
    assert finding.fewer_bytes == pytest.approx(5)
    assert finding.speed_up == pytest.approx(10)
    assert finding.timed_sent == pytest.approx(12)
    _, untimed = findings(Comparison(2, None, None, trained, []))
    assert untimed.speed_up == pytest.approx(2)


def test_rate_rises_and_falls_to_zero() -> None:
    rates = [rate_at(100)(step) for step in range(101)]
    assert rates[0] == pytest.approx(0.5)
    assert max(rates) == rates[1] == pytest.approx(1, abs=1e-3)
    assert rates[51] == pytest.approx(1 - rates[49])
    assert rates[100] == 0
    assert rates[1:] == sorted(rates[1:], reverse=True)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("group_of_one")
def test_digits_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    # So much noise as there is otherwise takes thousands of steps.
    monkeypatch.setattr(digits, "NOISE", 0.05)
    trainee = digits.DigitsTrainee(seed=0)
    losses = [float(trainee.step(number)) for number in range(400)]
    assert sum(losses[-20:]) < 0.5 * sum(losses[:20]), losses
    assert trainee.held_out_loss() < 0.5 * losses[0]


def test_distortion_shifts_and_adds_noise() -> None:
    image = torch.zeros(1, 1, SIDE, SIDE)
    image[0, 0, 4, 4] = 100.0
    views = distorted(image.repeat(2000, 1, 1, 1), torch.Generator().manual_seed(1))
    places = views.flatten(1).argmax(1)
    assert {(int(place) // SIDE, int(place) % SIDE) for place in places} == {
        (row, column) for row in (3, 4, 5) for column in (3, 4, 5)
    }
    assert float(views[:, 0, 0, 0].std()) == pytest.approx(NOISE, rel=0.1)


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ("gloo", "gloo"),
        ("sparsewire", "sparsewire"),
        ("fake", "fake"),
        ("cpu:gloo,cuda:gloo", "cpu:gloo,cuda:gloo"),
        ("cpu:sparsewire", "cpu:sparsewire"),
        ("diana/ternary", "sparsewire"),
    ],
)
def test_averagings_by_name(text: str, backend: str) -> None:
    averaging = Averaging.parse(text)
    assert str(averaging) == text
    assert averaging.backend == backend


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gloo", "gloo (dense)"),
        ("sparsewire", "sparsewire"),
        ("feedback/top-k:0.01", "sparsewire, 1% top-k with error feedback"),
        ("feedback", "sparsewire, 0.65% block-top-k with error feedback"),
        ("diana", "sparsewire, qsgd with DIANA"),
    ],
)
def test_legends_are_words(text: str, words: str) -> None:
    assert Averaging.parse(text).in_words == words


def test_averagings_with_equal_words_are_told_apart() -> None:
    averagings = ["gloo", "diana/qsgd:7", "diana/qsgd:15"]
    trained = [run_of(averaging, 0, 2.0, 1.0, 100.0) for averaging in averagings]
    seconds = {("lstm", averaging): 1.0 for averaging in averagings}
    axes = losses(Comparison(2, None, None, trained, []), seconds).axes[0]
    assert axes.get_legend_handles_labels()[1] == [
        "gloo (dense)",
        "sparsewire, qsgd with DIANA (diana/qsgd:7)",
        "sparsewire, qsgd with DIANA (diana/qsgd:15)",
    ]


def test_small_parameters_may_have_an_operator_of_their_own() -> None:
    averaging = Averaging.parse("feedback/top-k:0.01/top-k:0.1")
    assert averaging.operator_for(2**17).contraction == pytest.approx(0.01, rel=1e-3)
    assert averaging.operator_for(2**17 - 1).contraction == pytest.approx(0.1, rel=1e-3)
    assert Averaging.parse("diana").operator_for(1000).omega < 1
    assert Averaging.parse("diana/identity").operator_for(1000).omega == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "gloo,no-such"], "method 'no-such' is not known"),
        (["--method", "gloo/qsgd:7"], "method 'gloo/qsgd:7' is not known"),
        (["--method", "undefined"], "method 'undefined' is not known"),
        (["--method", "cpu:no-such"], "method 'cpu:no-such' is not known"),
        (["--method", "diana/qsgd:7/qsgd:7/qsgd:7"], "is not known"),
        (["--method", "diana/no-such:7"], "no operator 'no-such'"),
        (["--task", "chess"], "task 'chess' is not known"),
        (["--task", "lstm", "--text", "/no/such/file"], "no file or folder"),
    ],
)
def test_errors_say_what_is_wrong(arguments: list[str], message: str) -> None:
    outcome = bench_training(*arguments)
    assert outcome.exit_code == 1
    assert message in outcome.output


@pytest.mark.parametrize("link", ["fast", "100mbit"])
def test_links_that_cannot_be_had_are_refused_before_anything_is_trained(
    link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise LabError("no root")

    monkeypatch.setattr("sparsewire.tools.experiment.cluster.Lab", refuse)
    monkeypatch.setattr(comparison, "train", lambda *_: pytest.fail("trains"))
    write_text(tmp_path / "text")
    outcome = bench_training("--link", link, "--ranks", RANKS, "--text", tmp_path / "text")
    assert outcome.exit_code == 1
    assert ("no root" if link == "100mbit" else "'fast'") in outcome.output
