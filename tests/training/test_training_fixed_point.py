"""The demo's model learns the same with sums in fixed point as with exact ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import serving
from test_training import write_text

pytest.importorskip("torch")

from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.training import corpus
from sparsewire.tools.training.corpus import save_corpus
from sparsewire.tools.training.run import Trained, train
from sparsewire.tools.training.trial import Trial

RANKS, STEPS = 2, 8


def trained(arithmetic: str, tokens: Path, monkeypatch: pytest.MonkeyPatch) -> Trained:
    trial = Trial("lstm", "sparsewire", STEPS, 0, evaluations=1, width=128, tokens=str(tokens))
    logs = tokens.parent / arithmetic
    with serving(transport="udp") as server:
        monkeypatch.setenv("SPARSEWIRE_TRANSPORT", "udp")
        monkeypatch.setenv("SPARSEWIRE_AGGREGATORS", str(server.address))
        monkeypatch.setenv("SPARSEWIRE_ARITHMETIC", arithmetic)
        run = train(trial, Cluster(RANKS), logs, arithmetic, lambda *_: None)
        # At most 8 blocks of 256 in each; few of them are zero, as all 50 words occur.
        least = RANKS * STEPS * run.parameters // (8 * 256)
        assert server.stats()["datagrams_received"] > least // 2, "datagrams carried the sums"
    return run


@pytest.mark.timeout(300)
def test_losses_are_those_of_exact_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MIN_TOKENS_PER_WORKER", 1000)
    write_text(tmp_path / "text")
    save_corpus(tmp_path / "text", 50, RANKS, tmp_path / "tokens.npy")
    exact, fixed = (
        trained(arithmetic, tmp_path / "tokens.npy", monkeypatch)
        for arithmetic in ("exact", "fixed")
    )
    assert exact.losses[-1] < 0.99 * exact.losses[0], "it learns something"
    assert fixed.losses == pytest.approx(exact.losses, rel=1e-3)
    assert fixed.held_out_loss == pytest.approx(exact.held_out_loss, rel=1e-3)
