"""What publishing weights costs a reader that serves: the pause, memory, and bytes when it is late.

    python benchmarks/weights_cost.py pause --record
    python benchmarks/weights_cost.py memory --record
    python benchmarks/weights_cost.py late --record

All on this machine, over loopback. The pause is `apply` after `verify`, on one processor. Memory is
the peak beside what was there, of a publisher and a reader in processes of their own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import records
from weights_network import started, version
from weights_synthetic import model, nbytes_of, step, tensors

from sparsewire.tools.lab.site import Loopback
from sparsewire.weights import Publisher, Receiver
from sparsewire.weights.versions.tensors import Tensor

LIMIT_S = 600.0
LATE = 100


def moved(nbytes: int, share: float, versions: int) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a version, one at a time, so that the model does not lie here as well."""
    randoms = [np.random.default_rng(seed) for seed in range(versions)]
    for name, tensor in tensors(nbytes):
        for random in randoms:
            step(tensor, share, random)
        yield name, tensor


def pause(given: argparse.Namespace) -> dict[str, records.Row]:
    """A reader that applies versions on one processor; the publisher is there, but idle."""
    mine = model(given.nbytes)
    rows = []
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish(tensors(given.nbytes))
        with Receiver(publisher.address, mine, threads=1) as receiver:
            receiver.stage(timeout=LIMIT_S).apply()
            for number in range(1, given.rounds + 1):
                told = publisher.publish(moved(given.nbytes, given.share, number))
                staged = receiver.stage(timeout=LIMIT_S)
                begin = time.perf_counter()
                staged.verify()
                verified = time.perf_counter()
                staged.apply()
                row = {"pause_s": time.perf_counter() - verified, "verify_s": verified - begin}
                print("  ", row, flush=True)
                rows.append({**row, "message_bytes": told.nbytes, "changed": told.changed})
    best = min(rows, key=lambda row: row["pause_s"])
    return {f"pause/{given.share:g}": {**best, "model_bytes": nbytes_of(mine)}}


def memory(given: argparse.Namespace) -> dict[str, records.Row]:
    """A first version, which comes whole, and then one that changes little."""
    publisher, readers = started(Loopback(2), 1, given.nbytes, 0)
    first = version(publisher, readers)
    model_bytes = nbytes_of(model(given.nbytes))
    rows = {"memory/first": beside(first, model_bytes)}
    for _ in range(given.rounds):
        row = beside(version(publisher, readers, share=given.share), 0)
        rows[f"memory/{given.share:g}"] = max(
            row, rows.get(f"memory/{given.share:g}", row), key=most
        )
    for member in (publisher, *readers):
        member.end()
    return rows


def beside(row: records.Row, version_bytes: int) -> records.Row:
    """Without the message, and without the version's tensors where these are new."""
    known = row["message_bytes"] + version_bytes
    return {
        "publisher_beside_bytes": row["publish_memory_bytes"] - known,
        "reader_beside_bytes": row["read_memory_bytes"] - known,
        "message_bytes": row["message_bytes"],
        "publish_s": row["publish_s"],
        "applied_s": row["applied_s"],
    }


def most(row: records.Row) -> int:
    return int(max(row["publisher_beside_bytes"], row["reader_beside_bytes"]))


def late(given: argparse.Namespace) -> dict[str, records.Row]:
    """A reader that comes back LATE versions later."""
    return {
        f"late/{share:g}/{keep}": late_reader(given.nbytes, share, keep)
        for share in (0.001, 0.01)
        for keep in (64, 200)
    }


def late_reader(nbytes: int, share: float, keep: int) -> records.Row:
    fresh, mine = model(nbytes), model(nbytes)
    random = np.random.default_rng(0)
    with Publisher("127.0.0.1:0", keep=keep) as publisher:
        publisher.publish(fresh)
        with Receiver(publisher.address, mine) as receiver:
            receiver.stage(timeout=LIMIT_S).apply()
            deltas = []
            for _ in range(LATE):
                for tensor in fresh.values():
                    step(tensor, share, random)
                deltas.append(publisher.publish(fresh).nbytes)
            begin = time.perf_counter()
            staged = receiver.stage(timeout=LIMIT_S)
            came = time.perf_counter()
            staged.apply()
            applied = time.perf_counter()
    assert all((mine[name].data == tensor.data).all() for name, tensor in fresh.items())
    way = staged.way
    return {
        "messages": way.messages,
        "way": "whole version first" if way.is_whole else "chain",
        "came_bytes": way.nbytes,
        "chain_bytes": sum(deltas),
        "newest_whole_bytes": way.whole_nbytes,
        "stage_s": came - begin,
        "apply_s": applied - came,
        "model_bytes": nbytes_of(fresh),
    }


CASES = {"pause": pause, "memory": memory, "late": late}
NBYTES = {"pause": 4 * 10**9, "memory": 10**9, "late": 32 << 20}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--nbytes", type=int, help="of the model")
    parser.add_argument("--share", type=float, default=0.01, help="of the elements that change")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="keep it in the record")
    given = parser.parse_args()
    given.nbytes = given.nbytes or NBYTES[given.case]
    for row, figures in CASES[given.case](given).items():
        print(row, *(f"{name} {value}" for name, value in figures.items()), sep="\n  ")
        if given.record:
            records.keep("weights_network", row, figures)


if __name__ == "__main__":
    main()
