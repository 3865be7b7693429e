"""A reader's copy of a checkpoint, and what it owes to its engine."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import policies
import torch

from sparsewire.errors import MismatchError, Timeout
from sparsewire.weights.engines.host_copy import HostCopy
from sparsewire.weights.engines.publishing import await_readers
from sparsewire.weights.publisher import Publisher


def test_the_first_version_is_owed_whole_and_later_ones_by_what_changed(tmp_path: Path) -> None:
    weights = policies.policy()
    checkpoint = policies.save(weights, tmp_path)
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish(weights)
        copy = HostCopy(str(publisher.address), checkpoint)
        copy.advance()
        assert policies.sums(dict(copy.owed())) == policies.sums(weights)
        copy.settle()
        assert not copy.is_owing
        for number in range(2):
            policies.step(weights, number)
            publisher.publish(weights)
            copy.advance(number + 1)
        # Two versions were not loaded, so both are owed.
        assert policies.sums(dict(copy.owed())) == policies.sums(weights)
        assert policies.sums(dict(copy.all())) == policies.sums(weights)
        copy.close()


def test_the_checkpoint_itself_stays_as_it_is(tmp_path: Path) -> None:
    weights = policies.policy()
    checkpoint = policies.save(weights, tmp_path)
    before = (checkpoint / "model.safetensors").read_bytes()
    with Publisher("127.0.0.1:0") as publisher:
        copy = HostCopy(str(publisher.address), checkpoint)
        policies.step(weights, 0)
        publisher.publish(weights)
        copy.advance()
        copy.close()
    assert (checkpoint / "model.safetensors").read_bytes() == before


def test_tensors_come_and_go_with_the_publishers(tmp_path: Path) -> None:
    weights = policies.policy()
    with Publisher("127.0.0.1:0") as publisher:
        copy = HostCopy(str(publisher.address))
        publisher.publish(weights)
        copy.advance()
        gone = weights.pop("model.norm.weight")
        weights["model.norm.bias"] = torch.zeros_like(gone)
        publisher.publish(weights)
        copy.advance()
        assert policies.sums(dict(copy.all())) == policies.sums(weights)
        assert "model.norm.weight" not in dict(copy.owed())
        copy.close()


def test_a_version_that_does_not_come_changes_nothing(tmp_path: Path) -> None:
    weights = policies.policy()
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish(weights)
        copy = HostCopy(str(publisher.address), policies.save(weights, tmp_path))
        copy.advance()
        copy.settle()
        with pytest.raises(Timeout):
            copy.advance(1, timeout=0.2)
        assert copy.version == 0
        assert not copy.is_owing
        copy.close()


def test_a_version_is_verified_before_anybody_asks_for_it(tmp_path: Path) -> None:
    weights = policies.policy()
    with Publisher("127.0.0.1:0") as publisher:
        copy = HostCopy(str(publisher.address), policies.save(weights, tmp_path))
        while [row["doing"] for row in publisher.status()["readers"]] != ["waiting"]:
            time.sleep(0.01)
        publisher.publish(weights)
        await_readers(publisher)
        [row] = publisher.status()["readers"]
        assert (row["version"], row["verified"]) == (None, 0)
        copy.advance(0, timeout=0)
        assert copy.version == 0
        copy.close()


def test_a_version_that_was_passed_over_can_still_be_had(tmp_path: Path) -> None:
    weights = policies.policy()
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish(weights)
        copy = HostCopy(str(publisher.address), policies.save(weights, tmp_path))
        copy.advance(0)
        policies.step(weights, 0)
        publisher.publish(weights)
        wanted = policies.sums(weights)
        await_readers(publisher)
        policies.step(weights, 1)
        publisher.publish(weights)
        # Version 1 is staged, and 2 is wanted; then 1 is gone, and 2 is here already.
        copy.advance(2)
        assert policies.sums(dict(copy.all())) == policies.sums(weights) != wanted
        copy.advance(2)
        assert copy.version == 2
        copy.close()


def test_what_fails_ahead_is_told_and_tried_again(tmp_path: Path) -> None:
    weights = policies.policy()
    other = {"model.norm.weight": torch.zeros(3)}
    with Publisher("127.0.0.1:0") as publisher:
        copy = HostCopy(str(publisher.address), policies.save(weights, tmp_path))
        publisher.publish(other)
        with pytest.raises(MismatchError, match=r"model\.norm\.weight"):
            copy.advance()
        publisher.publish({})
        publisher.publish(weights)
        copy.advance(2)
        assert policies.sums(dict(copy.all())) == policies.sums(weights)
        copy.close()


def test_waiting_for_readers_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    late = {"doing": "staging", "version": None, "verified": None}
    monkeypatch.setattr(Publisher, "status", lambda _: {"readers": [late]})
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish({})
        await_readers(publisher, timeout=0.05)
