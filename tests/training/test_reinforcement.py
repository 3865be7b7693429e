"""Training by reinforcement: the task, the policy, the loss, batches, transfers, and the loop."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("xxhash")

import torch

from sparsewire.errors import ProtocolError
from sparsewire.tools.cli.main import app
from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.report import ResultFiles
from sparsewire.tools.lab import available
from sparsewire.tools.training.reinforcement import demo, loop, pretraining, reversal
from sparsewire.tools.training.reinforcement.demo import WeightsDemo, demo_report, verdict
from sparsewire.tools.training.reinforcement.learner import (
    Masters,
    advantages,
    learn,
    surrogate,
)
from sparsewire.tools.training.reinforcement.loop import Run
from sparsewire.tools.training.reinforcement.order import DELTAS, WHOLE, Order
from sparsewire.tools.training.reinforcement.policy import Policy, log_chances, sample
from sparsewire.tools.training.reinforcement.samples import Batch, receive, send
from sparsewire.tools.training.reinforcement.sampling import SamplingLoop, sampled

WHY_NOT = available()
VERSIONS = 3
SMALL = {"width": 32, "depth": 1}


def small_policy(seed: int = 0) -> Policy:
    torch.manual_seed(seed)
    return Policy(reversal.VOCABULARY, reversal.LENGTH, **SMALL)


def generator() -> Any:
    return torch.Generator().manual_seed(0)


def test_the_reward_counts_letters_in_their_places() -> None:
    asked = reversal.prompts(1, generator())
    letters = asked[:, : reversal.COUNT]
    right = letters.flip(1)
    assert reversal.rewards(torch.cat([asked, right], 1)).item() == 1
    almost = right.clone()
    almost[0, 0] = (almost[0, 0] + 1) % reversal.LETTERS
    expected = 1 - 1 / reversal.COUNT
    assert reversal.rewards(torch.cat([asked, almost], 1)).item() == pytest.approx(expected)


def test_half_of_the_demonstrations_are_right() -> None:
    shown = reversal.demonstrations(400, generator())
    assert shown.shape == (400, reversal.LENGTH)
    right = (reversal.rewards(shown) == 1).float().mean()
    assert 0.4 < right < 0.6


def test_the_policy_sees_nothing_of_what_comes() -> None:
    policy = small_policy()
    tokens = reversal.demonstrations(4, generator())
    other = tokens.clone()
    other[:, 8:] = 0
    before = policy(tokens)[:, :8]
    assert before.equal(policy(other)[:, :8])
    assert before.dtype == torch.float32
    assert next(policy.parameters()).dtype == torch.bfloat16


def test_samples_follow_the_chances() -> None:
    policy = small_policy()
    with torch.no_grad():
        policy.head.weight.zero_()
        policy.norm.bias.fill_(1)
        policy.head.weight[3] = 1
    tokens = sample(policy, reversal.prompts(8, generator()), reversal.COUNT, generator())
    assert (tokens[:, reversal.PROMPT :] == 3).all()
    assert log_chances(policy, tokens, reversal.COUNT).exp().min() > 0.99


def test_masters_keep_what_bfloat16_drops() -> None:
    own = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    masters = Masters([own], rate=1e-3)
    seen = []
    for _ in range(8):
        own.grad = torch.ones_like(own)
        masters.step()
        seen.append(own[0].item())
    # A step is less than half of what 1 and its neighbour differ by: the first ones change nothing.
    assert seen[0] == 1
    assert seen[-1] < 1
    assert own.grad is None


def test_advantages_are_of_a_group() -> None:
    found = advantages(torch.tensor([0.0, 1.0, 0.5, 0.5]), 2)
    assert found[0] == -found[1]
    assert found[:2].abs().sum() > 1
    assert found[2:].tolist() == [0, 0]


def test_the_loss_is_clipped_only_against_the_gain() -> None:
    then = torch.zeros(2, 1)
    for gain, moved in ((1.0, False), (-1.0, True)):
        now = torch.tensor([[0.0], [1.0]], requires_grad=True)
        surrogate(now, then, torch.full((2,), gain)).backward()
        assert now.grad is not None
        assert now.grad[0] == -gain / 2
        assert bool(now.grad[1]) is moved


def test_learning_makes_better_answers_likelier() -> None:
    policy = small_policy()
    batch = sampled(policy, 0, 8, 16, generator())
    earned = reversal.rewards(batch.tokens)
    reward = learn(policy, Masters(policy.parameters(), 1e-2), batch, 16)
    assert reward == pytest.approx(earned.mean().item())
    with torch.no_grad():
        now = log_chances(policy, batch.tokens, reversal.COUNT)
    gained = (now - batch.log_chances).mean(1)
    assert (gained * advantages(earned, 16)).mean() > 0


def test_pretraining_lowers_the_loss_and_keeps_it(tmp_path: Path) -> None:
    policy, told = small_policy(), []
    pretraining.pretrain(policy, 40, 0, lambda step, loss: told.append((step, loss)))
    assert [step for step, _ in told] == list(range(1, 41))
    assert told[-1][1] < told[0][1] - 0.1
    pretraining.save(policy, tmp_path / "start.npy")
    other = small_policy(1)
    pretraining.load(other, tmp_path / "start.npy")
    for own, theirs in zip(policy.parameters(), other.parameters(), strict=True):
        assert own.equal(theirs)


def test_batches_travel() -> None:
    store = torch.distributed.HashStore()
    batch = sampled(small_policy(), 7, 2, 3, generator())
    send(store, 2, 5, batch)
    found = receive(store, 2, 5, 6)
    assert found.version == 7
    assert found.tokens.equal(batch.tokens)
    assert found.log_chances.equal(batch.log_chances)
    assert not store.check(["batch/2/5"])


def test_what_is_no_batch_is_refused() -> None:
    data = sampled(small_policy(), 7, 2, 3, generator()).encode()
    for wrong in (b"", data[:-1], data + b"x"):
        with pytest.raises(ProtocolError, match="no batch of 6 samples"):
            Batch.decode(wrong, 6)
    with pytest.raises(ProtocolError, match="token 255"):
        Batch.decode(data[:8] + b"\xff" + data[9:], 6)


class InOrder:
    """A reader's end whose versions come at once."""

    version = 0

    def __init__(self) -> None:
        self.log: list[str] = []

    def get(self) -> None:
        self.log.append("get")

    def apply(self) -> int:
        self.version += 1
        self.log.append("apply")
        return 10

    def close(self) -> None:
        self.log.append("close")


def order_of(start: Path, transfer: str = DELTAS) -> Order:
    more = {"prompts": 2, "answers": 4, "pretraining_steps": 2, "timeout_s": 40.0}
    return Order(transfer, str(start), VERSIONS, 0, **SMALL, **more)


def test_a_reader_samples_with_the_version_before_the_last(tmp_path: Path) -> None:
    reader, sent = InOrder(), []
    rows = SamplingLoop(order_of(tmp_path / "start.npy"), small_policy(), reader, 0)
    with ThreadPoolExecutor(1) as pool:
        rows.run(pool, lambda number, batch: sent.append((number, batch.version)))
    assert sent == [(0, 0), (1, 0), (2, 1)]
    assert reader.version == VERSIONS
    assert reader.log.count("get") == VERSIONS
    assert [row["nbytes"] for row in rows.told()["applied"]] == [10] * VERSIONS


def ran(transfer: str, seconds: float, nbytes: int, bits: str = "b") -> Run:
    """What a run tells, with a version every so many seconds."""
    found = Run(transfer)
    found.take({"event": "began", "at": 100.0, "parameters": 1000})
    numbers = range(1, 5)
    times = [100 + seconds * number for number in numbers]
    for number, at in zip(numbers, times, strict=True):
        more = {"changed": 50} if transfer == DELTAS else {}
        found.take({"event": "version", "number": number, "at": at, "reward": 0.5, **more})
    for _ in range(2):
        own = {"waited_s": 0.02, "pause_s": 0.001, "nbytes": nbytes}
        applied = [{"version": n, "at": at, **own} for n, at in zip(numbers, times, strict=True)]
        sampled = [{"version": n, "at": 100 + n, "reward": n / 4} for n in numbers]
        found.take({"event": "reader", "bits": bits, "applied": applied, "sampled": sampled})
    found.take({"event": "ended", "bits": bits})
    return found


def compared(bits: str = "b") -> WeightsDemo:
    cluster = Cluster(4, emulated=True, link="100mbit")
    runs = [ran(WHOLE, 2.0, 2000), ran(DELTAS, 1.0, 40, bits)]
    return WeightsDemo(cluster, order_of(Path("start")), runs)


def test_figures_of_a_run() -> None:
    run = ran(DELTAS, 1.0, 40)
    assert run.elapsed_s == pytest.approx(4)
    assert run.version_s == pytest.approx(1)
    assert run.version_bytes == 40
    assert run.idle_s == pytest.approx(0.02)
    assert run.pause_s == pytest.approx(0.001)
    assert run.changed_share == pytest.approx(0.05)
    assert ran(WHOLE, 1.0, 40).changed_share is None
    assert (run.first_reward, run.last_reward) == (0.25, 1)


def test_the_verdict_says_what_differs() -> None:
    found = compared()
    assert found.speed_up == pytest.approx(2)
    assert found.fewer_bytes == pytest.approx(50)
    assert "1/50 of the bytes" in verdict(found)
    assert "2.0 times as fast" in verdict(found)
    assert "end with the same bits" in verdict(found)
    assert "DIFFERENT bits" in verdict(compared("other"))


def test_report_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    demo_report(compared()).present(ResultFiles(tmp_path / "r.json", tmp_path / "r.png"))
    written = json.loads((tmp_path / "r.json").read_text())
    assert written["against_whole"]["fewer_bytes"] == pytest.approx(50)
    assert [run["transfer"] for run in written["transfers"]] == [WHOLE, DELTAS]
    assert written["setting"]["link"] == "100mbit"
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr().out
    for expected in ("what changed", "5.00%", "0.040 kB", "links of 100mbit"):
        assert expected in shown


def run_loop(transfer: str, cluster: Cluster, folder: Path) -> Run:
    pretraining.save(small_policy(), folder / "start.npy")
    order = order_of(folder / "start.npy", transfer)
    return loop.run(order, cluster, folder / "logs", transfer, lambda *move: None)


@pytest.mark.lab
@pytest.mark.skipif(WHY_NOT is not None, reason=f"{WHY_NOT}")
@pytest.mark.timeout(240)
def test_both_transfers_train_alike_in_the_lab(tmp_path: Path) -> None:
    cluster = Cluster(4, emulated=True, link="100mbit")
    whole, deltas = (run_loop(each, cluster, tmp_path) for each in (WHOLE, DELTAS))
    for run in (whole, deltas):
        assert run.is_exact
        assert [row["number"] for row in run.versions] == list(range(1, VERSIONS + 1))
        assert sorted(row["version"] for row in run.sampled) == [0, 0, 0, 0, 1, 1]
        assert len(run.applied) == 2 * VERSIONS
    assert whole.bits == deltas.bits
    assert whole.version_bytes == 2 * whole.parameters
    assert 0 < deltas.version_bytes < whole.version_bytes


@pytest.mark.exhaustive
@pytest.mark.timeout(240)
def test_the_loop_on_loopback(tmp_path: Path) -> None:
    assert run_loop(DELTAS, Cluster(4), tmp_path).is_exact


def test_the_command_without_a_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    clusters = []

    def run(order: Order, cluster: Cluster, *_: object) -> Run:
        clusters.append(cluster)
        return ran(order.transfer, 1.0, 40)

    monkeypatch.setattr("sparsewire.tools.lab.available", lambda: "no root")
    monkeypatch.setattr(demo, "Order", lambda transfer, start, *_: order_of(Path(start), transfer))
    monkeypatch.setattr(loop, "run", run)
    options = ["--what", "weights", "--output", str(tmp_path)]
    outcome = CliRunner().invoke(app, ["demo", *options])
    assert outcome.exit_code == 0, outcome.output
    assert "No emulated network: no root." in outcome.output
    assert "end with the same bits" in " ".join(outcome.output.split())
    assert clusters == [Cluster(4)] * 2
    record = json.loads((tmp_path / "report.json").read_text())
    assert record["setting"]["link"] is None
    assert (tmp_path / "reward.png").exists()
    assert (tmp_path / "pretrained.npy").exists()


@pytest.mark.parametrize("option", ["--corpus", "--backend", "--workers", "--hosts"])
def test_options_of_the_other_demo_are_refused(option: str) -> None:
    value = "4" if option in ("--workers", "--hosts") else "gloo"
    outcome = CliRunner().invoke(app, ["demo", "--what", "weights", option, value])
    assert outcome.exit_code == 2
    assert f"{option} is of --what gradients" in outcome.output
