"""Trains the demo's model with gradients in fixed point, and exactly: how far losses are apart.

    python benchmarks/slots_training.py --steps 200 --record

On loopback, by datagrams to an aggregator in user space.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

import records

from sparsewire.meeting.aggregators.aggregator import AggregatorServer
from sparsewire.options import Address
from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.training.corpus import save_corpus
from sparsewire.tools.training.demo import VOCABULARY, WIDTH
from sparsewire.tools.training.run import Trained, train
from sparsewire.tools.training.trial import Trial

ARITHMETICS = ("exact", "fixed")


def trained(arithmetic: str, trial: Trial, ranks: int, logs: Path) -> Trained:
    with closing(AggregatorServer(Address("127.0.0.1", 0), transport="udp")) as server:
        settings = {
            "SPARSEWIRE_TRANSPORT": "udp",
            "SPARSEWIRE_AGGREGATORS": str(server.address),
            "SPARSEWIRE_ARITHMETIC": arithmetic,
        }
        with mock.patch.dict(os.environ, settings), running(server):
            return train(trial, Cluster(ranks), logs, arithmetic, lambda *_: None)


@contextmanager
def running(server: AggregatorServer) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=server.serve, args=(stop.is_set,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def compared(exact: Trained, fixed: Trained) -> records.Row:
    """Shares are those of the exact run's losses."""
    return {
        "exact_final_loss": exact.final_loss,
        "fixed_final_loss": fixed.final_loss,
        "final_loss_share": fixed.final_loss / exact.final_loss - 1,
        "exact_held_out_loss": exact.held_out_loss,
        "fixed_held_out_loss": fixed.held_out_loss,
        "held_out_loss_share": fixed.held_out_loss / exact.held_out_loss - 1,
        "most_apart_share": max(
            abs(b / a - 1) for a, b in zip(exact.losses, fixed.losses, strict=True)
        ),
        "exact_step_s": exact.mean_step_s,
        "fixed_step_s": fixed.mean_step_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--corpus", type=Path, help="a text, instead of those that are found here")
    parser.add_argument("--record", action="store_true", help="keep it in records/slots-training")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder, "tokens.npy")
        corpus = save_corpus(given.corpus, VOCABULARY, given.ranks, tokens)
        trial = Trial(
            "lstm", "sparsewire", given.steps, 0, evaluations=1, width=given.width,
            tokens=str(tokens),
        )  # fmt: skip
        runs = [trained(each, trial, given.ranks, Path(folder, each)) for each in ARITHMETICS]
    row = compared(*runs)
    print(f"Text: {corpus}", *row.items(), sep="\n")
    if given.record:
        records.keep("slots-training", f"{given.steps}-steps", row)


if __name__ == "__main__":
    main()
