"""`sparsewire optimize` as users compare methods and have one chosen, on bundled data."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import CALL, optimize
from matplotlib.image import imread

# Well conditioned, so that seconds are enough.
QUICK = ["digits", "--workers", "8", "--l2", "0.05", "--split", "label", "--accuracy", "1e-7"]
FIRST_COLOUR = np.array([31, 119, 180]) / 255


def record_of(tmp_path: Path, *arguments: object) -> dict[str, Any]:
    """What the command writes as JSON."""
    file = tmp_path / "out.json"
    outcome = optimize(*arguments, "--json", file)
    assert outcome.exit_code == 0, outcome.output
    record: dict[str, Any] = json.loads(file.read_text(), parse_constant=pytest.fail)
    return record


def runs_of(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {run["label"]: run for run in record["runs"]}


def assert_drawn(file: Path, panels: int = 3) -> None:
    """Each panel has enough pixels in the colour of the first line."""
    pixels = imread(file)[:, :, :3]
    for part in np.array_split(pixels, panels, axis=1):
        near = np.abs(part - FIRST_COLOUR).max(axis=2) < 0.02
        assert near.sum() > 200


def test_methods_are_compared(tmp_path: Path) -> None:
    plot = tmp_path / "out.png"
    methods = ["--method", "diana/ternary:inf,dcgd/ternary:inf", "--method", "gd"]
    record = record_of(tmp_path, *QUICK, *methods, "--epochs", 300, "--plot", plot)
    assert_drawn(plot)
    runs = runs_of(record)
    diana, dcgd, gd = (runs[name] for name in ("diana/ternary:inf", "dcgd/ternary:inf", "gd"))
    assert diana["ending"] == gd["ending"] == "reached"
    first = record["setting"]["first_distance"]
    assert diana["points"][-1]["distance"] <= 1e-7 * first
    # Without shifts it stalls, for gradients of workers do not vanish at the solution.
    assert dcgd["ending"] == "out of epochs"
    assert dcgd["points"][-1]["distance"] > 1e-5 * first
    assert [warning.split()[0] for warning in record["warnings"]] == ["dcgd"]
    # Compression costs rounds and saves bits.
    assert diana["points"][-1]["rounds"] > gd["points"][-1]["rounds"]
    assert diana["points"][-1]["bits"] < gd["points"][-1]["bits"] / 2


def test_record_tells_the_whole_story(tmp_path: Path) -> None:
    link = ["--link", "10mbit", "--downlink", "100mbit", "--latency", "5ms"]
    record = record_of(tmp_path, *QUICK, "--method", "gd,ef21", *link)
    setting = record["setting"]
    assert (setting["rows"], setting["dimension"]) == (1792, 64)
    assert (setting["workers"], setting["simulated"]) == (8, True)
    assert setting["condition"] == pytest.approx(setting["smoothness"] / 0.05)
    runs = runs_of(record)
    assert runs["gd"]["compressor"] is runs["gd"]["omega"] is None
    assert runs["ef21/top-k:0.1"]["omega"] is None
    assert runs["ef21/top-k:0.1"]["contraction"] == pytest.approx(6 / 64)
    for run in record["runs"]:
        for name in ("rounds", "epochs", "bits", "seconds"):
            values = [point[name] for point in run["points"]]
            assert values[0] == 0
            assert values == sorted(set(values)), name
    # A gradient of 64 float64 goes up, the mean comes back, and each way has a latency.
    last = runs["gd"]["points"][-1]
    assert last["bits"] == 64 * 64 * last["rounds"]
    assert last["epochs"] == last["rounds"]
    assert last["seconds"] == pytest.approx(last["rounds"] * (2 * 5e-3 + 4096 / 1e7 + 4096 / 1e8))


def test_table_names_methods_and_endings() -> None:
    outcome = optimize(*QUICK, "--method", "gd,diana", "--compressor", "rand-k:0.25")
    assert outcome.exit_code == 0, outcome.output
    assert "8 simulated workers, rows sorted by label" in outcome.output
    assert "1 Gbit/s per worker, 100 us latency" in outcome.output
    for words in (["gd", "reached"], ["diana/rand-k:0.25", "reached"]):
        assert any(all(word in line for word in words) for line in outcome.output.splitlines())


def test_all_methods_run(tmp_path: Path) -> None:
    from sparsewire.tools.optimize.compare.registry import METHODS

    data = ["breast_cancer", "--workers", 5, "--l2", 0.02, "--rounds", 40]
    record = record_of(tmp_path, *data, "--method", ",".join(METHODS))
    assert [run["method"] for run in record["runs"]] == list(METHODS)
    for run in record["runs"]:
        assert run["ending"] in ("out of rounds", "reached")
        distances = [point["distance"] for point in run["points"]]
        assert min(distances) < distances[0] == record["setting"]["first_distance"]
        assert run["points"][-1]["bits"] > 0


def test_methods_with_local_steps_are_compared(tmp_path: Path) -> None:
    texts = ["local-sgd", "diloco:average=contributors", "sparseloco:decay=1:step=1", "gd"]
    late = "local-sgd:delay=3:merge=corrected:step=1"
    record = record_of(tmp_path, *QUICK, "--rounds", 60, "--method", ",".join([*texts, late]))
    labels = [
        "local-sgd/identity",
        "diloco:average=contributors/identity",
        "sparseloco:decay=1:step=1/rounded:3+top-k:0.1",
        "gd",
        f"{late}/identity",
    ]
    runs = runs_of(record)
    assert list(runs) == labels
    last = {label: runs[label]["points"][-1] for label in labels}
    # Ten steps a round for the same message.
    assert last[labels[0]]["epochs"] == 10 * last[labels[0]]["rounds"]
    # Of 64 features 6 are sent, in three bits each.
    assert last[labels[2]]["bits"] < last[labels[0]]["bits"] / 20
    assert [warning.split()[0] for warning in record["warnings"]] == [
        "local-sgd",
        "diloco",
        "sparseloco",
    ]


def test_l1_term_is_solved_by_proximal_methods(tmp_path: Path) -> None:
    options = ["--method", "gd,diana/rand-k:0.5,isega", "--l1", "0.002", "--accuracy", "1e-10"]
    record = record_of(tmp_path, "breast_cancer", "--workers", 4, "--l2", 0.05, *options)
    assert [run["ending"] for run in record["runs"]] == ["reached"] * 3
    assert all(run["points"][-1]["suboptimality"] < 1e-8 for run in record["runs"])


def test_least_squares_takes_labels_as_they_are(tmp_path: Path) -> None:
    options = ["--model", "least-squares", "--workers", 4, "--l2", 0.05, "--method", "gd"]
    record = record_of(tmp_path, "diabetes", *options)
    assert record["runs"][0]["ending"] == "reached"
    # Labels are near 150, and would be near 1 as classes.
    assert record["setting"]["lowest"] > 1000


def test_libsvm_file_and_limits(data: Path, tmp_path: Path) -> None:
    limits = ["--workers", 3, "--rounds", 25, "--epochs", 10]
    runs = runs_of(record_of(tmp_path, data, *limits, "--method", "gd,vr-diana-saga/rand-k:4"))
    assert runs["gd"]["points"][-1]["rounds"] == 10
    assert runs["vr-diana-saga/rand-k:4"]["points"][-1]["rounds"] == 25
    assert runs["vr-diana-saga/rand-k:4"]["points"][-1]["epochs"] == pytest.approx(1 + 25 / 100)


def test_rounds_alone_are_no_epochs(tmp_path: Path) -> None:
    # More than the passes over the data at which a comparison ends by default.
    options = ["--method", "gd", "--rounds", 1100, "--accuracy", "1e-300"]
    record = record_of(tmp_path, "iris", "--workers", 2, *options)
    (run,) = record["runs"]
    assert (run["points"][-1]["rounds"], run["ending"]) == (1100, "out of rounds")
    assert record["setting"]["limits"] == {"accuracy": 1e-300, "rounds": 1100, "epochs": None}


def test_limits_are_told() -> None:
    outcome = optimize(*QUICK, "--method", "gd", "--rounds", 5)
    assert "each ends where |x - x*|² is 1e-07 of what it was, or after 5 rounds" in outcome.output
    assert "out of rounds" in outcome.output
    outcome = optimize(*QUICK, "--method", "gd")
    assert "after 20,000 rounds or 1,000 epochs" in outcome.output


def test_options_of_methods_are_compared(tmp_path: Path) -> None:
    methods = "diana,diana:momentum=0.5,diana:step=0.01/natural"
    options = ["--method", methods, "--compressor", "rand-k:0.5", "--rounds", 20]
    runs = runs_of(record_of(tmp_path, *QUICK, *options))
    labels = ["diana/rand-k:0.5", "diana:momentum=0.5/rand-k:0.5", "diana:step=0.01/natural"]
    assert list(runs) == labels
    plain, heavy, slow = runs.values()
    assert (plain["options"], heavy["options"]) == ({}, {"beta": 0.5})
    assert (slow["step_size"], slow["rate"]) == (0.01, None)
    assert heavy["points"][-1]["distance"] != plain["points"][-1]["distance"]
    assert slow["points"][-1]["distance"] > 10 * plain["points"][-1]["distance"]


def test_step_that_is_too_long_diverges_in_words(tmp_path: Path) -> None:
    record = record_of(tmp_path, *QUICK, "--method", "gd", "--step-size", "1e4")
    (run,) = record["runs"]
    assert (run["ending"], run["step_size"], run["rate"]) == ("diverged", 1e4, None)


def test_choice_predicts_runs_and_judges(tmp_path: Path) -> None:
    plot = tmp_path / "out.png"
    options = ["--choose", "--top", 3, "--link", "1mbit", "--downlink", "1gbit", "--latency", "1us"]
    record = record_of(tmp_path, *QUICK, *options, "--plot", plot)
    assert_drawn(plot)
    choices = record["choices"]
    predicted = [choice["predicted"]["seconds"] for choice in choices]
    assert predicted == sorted(predicted)
    assert len({choice["label"] for choice in choices}) == len(choices) > 20
    run = [choice for choice in choices if choice["measured"] is not None]
    assert [choice["label"] for choice in run[:3]] == [choice["label"] for choice in choices[:3]]
    assert "gd" in {choice["label"] for choice in run}
    for choice in run:
        assert choice["measured"]["ending"] == "reached"
        # Theory bounds the rounds; its Lyapunov function is not quite the distance.
        assert choice["measured"]["rounds"] <= 1.1 * choice["predicted"]["most_rounds"]
        assert choice["predicted"]["rounds"] <= choice["predicted"]["most_rounds"]
    # Where uploads are slow and the way back is not, plain gradient descent is no choice.
    assert choices[0]["label"] != "gd"
    check_ranking(record["ranking"], run)


def check_ranking(ranking: dict[str, Any], run: list[dict[str, Any]]) -> None:
    """It follows from the choices that were run."""
    labels = [choice["label"] for choice in run]
    measured = sorted(run, key=lambda choice: choice["measured"]["seconds"])
    assert ranking["predicted"] == labels
    assert ranking["measured"] == [choice["label"] for choice in measured]
    assert ranking["best_held"] == (measured[0] is run[0])
    seconds = [choice["measured"]["seconds"] for choice in run]
    pairs = [(a, b) for i, a in enumerate(seconds) for b in seconds[i + 1 :]]
    assert ranking["pairs"] == len(pairs)
    assert ranking["pairs_in_order"] == sum(a < b for a, b in pairs)
    assert ranking["held"] == (ranking["pairs_in_order"] == len(pairs))


def test_choice_is_gradient_descent_where_latency_is_all(tmp_path: Path) -> None:
    record = record_of(tmp_path, *QUICK, "--choose", "--top", 1, "--latency", "100ms")
    # Only acceleration and full gradients need so few rounds.
    assert record["choices"][0]["label"] == "gd"
    assert record["ranking"]["predicted"] == ["gd"]


def test_choice_among_what_the_user_names(tmp_path: Path) -> None:
    named = ["--choose", "--method", "gd,diana/rand-k:0.25", "--method", "isega"]
    record = record_of(tmp_path, *QUICK, *named, "--top", 1)
    labels = {choice["label"] for choice in record["choices"]}
    assert {"gd", "diana/rand-k:0.25", "isega", "isega/rand-k:0.25"} <= labels
    assert {choice["method"] for choice in record["choices"]} == {"gd", "diana", "isega"}


def test_choice_says_in_words_whether_it_held() -> None:
    outcome = optimize(*QUICK, "--choose", "--method", "gd,diana/natural", "--top", 1)
    assert outcome.exit_code == 0, outcome.output
    assert re.search(r"The choice (held|did not hold): ", outcome.output)
    assert re.search(r"2  diana/natural|2  gd", outcome.output)


def test_choice_names_what_it_cannot_predict() -> None:
    named = ["--choose", "--method", "gd,ef21-sgdm/top-k:0.5,diana:momentum=0.5/natural"]
    outcome = optimize(*QUICK, *named, "--top", 1)
    assert outcome.exit_code == 0, outcome.output
    assert "no theory says how fast they are: ef21-sgdm/top-k:0.5, diana:mom" in outcome.output


def test_choice_on_least_squares_is_that_of_the_runs(tmp_path: Path) -> None:
    # The bounds of the theory alone would say gradient descent, which takes nearly twice as long.
    data = ["diabetes", "--model", "least-squares", "--no-normalize", "--link", "1mbit"]
    record = record_of(tmp_path, *data, "--choose", "--top", 4)
    first, *_ = record["choices"]
    worst = min(record["choices"], key=lambda choice: choice["predicted"]["most_rounds"])
    assert worst["label"] == "gd" != first["label"]
    seconds = {c["label"]: c["measured"]["seconds"] for c in record["choices"] if c["measured"]}
    assert seconds[first["label"]] < 1.2 * min(seconds.values())
    assert seconds["gd"] > 1.5 * seconds[first["label"]]


def test_methods_that_will_stall_are_named() -> None:
    label = ["breast_cancer", "--l2", "0.02", "--rounds", "5", "--split", "label"]
    outcome = optimize(*label, "--workers", 4, "--method", "ibcd,isega")
    assert outcome.exit_code == 0
    assert "warning: ibcd stalls at a floor" in outcome.output
    assert "warning: isega" not in outcome.output
    # A worker on its own agrees with all others.
    assert "warning" not in optimize(*label, "--workers", 1, "--method", "ibcd").output


@pytest.mark.parametrize("method", ["sgd", "bcd"])
def test_bundled_data_trains_too(method: str) -> None:
    outcome = optimize("breast_cancer", "--normalize", "--epochs", 1, "--method", method)
    assert outcome.exit_code == 0, outcome.output
    assert "breast_cancer: logistic regression" in outcome.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "dianna"], "there is no method 'dianna'; there are sgd, bcd, gd, dcgd"),
        (["--method", "diana/rand:3"], "there is no operator 'rand'; there are identity, rand-k"),
        (["--method", "diana/rand-k:0"], "write rand-k:K"),
        (
            ["--method", "diana", "--compressor", "top-k:0.1"],
            "diana needs an unbiased operator, and top-k:0.1 is biased; ef14, ef21, ef21-sgdm, l",
        ),
        (["--method", "isega/ternary"], "isega takes no ternary, but those that draw blocks"),
        (["--method", "ef21/threshold:1"], "choose one with --step"),
        (
            ["--method", "ef21/sign+natural"],
            "error feedback needs a contraction, and none is known",
        ),
        (
            ["--method", "ef14:step=1/sign+natural"],
            "ef14:step=1/sign+natural: error feedback needs",
        ),
        (["--method", "gd/rand-k:1"], "gd takes no operator"),
        (["--method", "diana/"], "names no compressor"),
        (
            ["--method", "diana:beta=0.9"],
            "diana has no option 'beta'; it has step, alpha, momentum",
        ),
        (["--method", "diana:rand-k:0.1"], "an operator goes behind a slash, like diana/OPERATOR"),
        (["--method", "diana:momentum=much"], "diana:momentum must be a number"),
        (["--method", "async-isgd:delay=1.5"], "async-isgd:delay must be a whole number"),
        (["--method", "qsgd:batch=0"], "qsgd:batch must be positive, not 0"),
        (["--method", "gd:step=1:step=2"], "gd is given step twice"),
        (["--method", "diana:momentum=2"], "diana:momentum=2/rand-k:0.1: beta must be in [0, 1)"),
        (["--method", "diloco:average=all"], "diloco:average must be members or contributors, not"),
        (["--method", "local-sgd:every=0"], "local-sgd:every must be positive"),
        (["--method", "diloco/top-k:0.1"], "diloco/top-k:0.1: no theory is for momentum"),
        (["--method", "local-sgd:delay=2"], "no theory is for delay"),
        (["--choose", "--method", "gd:step=1"], "no theory says how fast"),
        (["--method", "ef21", "--l1", "0.01"], "ef21 takes no l1 term; gd, dcgd"),
        (["--method", "gd", "--l1", "10"], "the solution is 0"),
        (["--method", "gd", "--l2", "0"], "strongly convex: choose --l2 above 0"),
        (["--method", "gd", "--link", "fast"], "cannot read link speed 'fast'"),
        (["--method", "gd", "--latency", "soon"], "cannot read latency 'soon'"),
        (["--method", "gd", "--accuracy", "2"], "--accuracy must be between 0 and 1, not 2"),
        (["--method", "gd", "--test-share", "0.5"], "--test-share is no option of a comparison"),
        (["--method", "gd", "--top", "2"], "--top is for --choose"),
        (["--method", "sgd", "--link", "1gbit"], "--link is no option of --method sgd"),
        (["--split", "label"], "--split is no option of --method sgd"),
        (["--method", "sgd,diana"], "sgd trains, alone"),
        (["--model", "least-squares"], "'least-squares' is not known: use one of logistic, svm"),
        (["--method", "gd", "--link", "0mbit"], "cannot read link speed '0mbit'"),
        (["--method", "sgd:batch=3"], "sgd:batch=3: sgd and bcd take --batch"),
        (["--method", ","], "--method names none"),
        (["--method", "gd", "--plot", "run.foo"], "cannot draw run.foo: its name must end in"),
        (["--choose", "--step", "1"], "leave out --step"),
        (["--choose", "--compressor", "rand:3"], "there is no operator 'rand'"),
        (["--choose", "--method", "ef21-sgdm"], "no theory says how fast"),
        (["--method", "gd", "--workers", "1000"], "569 rows cannot be divided among 1000"),
        (
            ["--method", "gd", "--rounds", "1", "--json", "/nowhere/run.json"],
            "cannot write /nowhere/run.json",
        ),
    ],
)
def test_bad_options_are_refused_in_words(options: list[str], message: str) -> None:
    outcome = optimize("breast_cancer", *options)
    assert outcome.exit_code == 1, outcome.output
    assert "error: " in outcome.output
    assert message in outcome.output


def test_methods_are_listed_without_data() -> None:
    outcome = optimize("--methods")
    assert outcome.exit_code == 0
    assert re.search(r"async-isgd .* step, batch, delay", outcome.output)


def test_any_speed_can_be_modelled(tmp_path: Path) -> None:
    # The lab could shape neither.
    link = ["--link", "100kbit", "--downlink", "100gbit"]
    record = record_of(tmp_path, "iris", "--method", "gd", "--rounds", 1, *link)
    assert record["setting"]["link"]["up_bits_s"] == 1e5
    assert record["setting"]["link"]["down_bits_s"] == 1e11


def test_unknown_data_names_what_needs_no_file() -> None:
    for options in ([], ["--method", "gd"]):
        outcome = optimize("brest_cancer", *options)
        assert outcome.exit_code == 1
        assert "cannot read brest_cancer" in outcome.output
        assert "breast_cancer, diabetes, digits" in outcome.output


def test_choice_and_workers_under_a_launcher_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    outcome = optimize("digits", "--choose")
    assert outcome.exit_code == 1
    assert "run it without a launcher" in outcome.output
    outcome = optimize("digits", "--method", "gd", "--workers", 2)
    assert outcome.exit_code == 1
    assert "leave out --workers" in outcome.output


@pytest.mark.exhaustive
@pytest.mark.timeout(180)
def test_under_torchrun_real_ranks_compare_and_count(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "out.json"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
    methods = ["--method", "diana/rand-k:0.25,gd", "--rounds", "25", "--json", str(file)]
    command = [sys.executable, "-c", CALL, "optimize", "digits", *methods]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    outcome = subprocess.run(
        [*torchrun, "--nproc-per-node", "3", *command],
        capture_output=True,
        text=True,
        env=environment,
        timeout=150,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    # Rank 0 alone reports, with the communicator's own counter beside the bits of the messages.
    assert outcome.stdout.count("digits: logistic, 3 workers") == 1
    assert "on the" in outcome.stdout
    record = json.loads(file.read_text())
    assert record["setting"]["simulated"] is False
    simulated = record_of(tmp_path, "digits", "--workers", 3, *methods[:-2])
    for run, other in zip(record["runs"], simulated["runs"], strict=True):
        assert run["points"][-1]["bits"] == other["points"][-1]["bits"]
        assert run["points"][-1]["distance"] == pytest.approx(other["points"][-1]["distance"])
        assert run["wire_bytes"] > 2 * run["points"][-1]["bits"] / 8
        assert other["wire_bytes"] is None
    diana, gd = (run["wire_bytes"] for run in record["runs"])
    assert diana < gd


def test_signal_handlers_are_left_as_they_were() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert optimize(*QUICK, "--method", "gd", "--rounds", 1).exit_code == 0
    assert signal.getsignal(signal.SIGTERM) is before
