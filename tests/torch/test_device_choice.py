"""Which path a tensor takes: by tables of figures, and agreed by what all ranks sampled."""

from __future__ import annotations

import pytest
import torch

from sparsewire.device import choice
from sparsewire.device.choice import PERIOD, SAMPLED, Chooser, Kind, Turn
from sparsewire.device.path_cost import Path, Sample, Speeds, choose, predict

GBIT_S = 8e-9  # Seconds a byte.
PCIE_S = 1 / 12e9
MB_100 = 100_000_000
SLOW = Speeds(PCIE_S, PCIE_S, GBIT_S)
FAST = Speeds(PCIE_S, PCIE_S, GBIT_S / 100)


def with_nccl(speeds: Speeds, times_dense: float) -> Speeds:
    """With an NCCL that takes so many times what a dense ring at the network's speed does."""
    return speeds._replace(inner_s=times_dense * 2 * 3 / 4 * speeds.network_s, inner_latency_s=3e-5)


@pytest.mark.parametrize(
    ("speeds", "own", "union", "path"),
    [
        # Without NCCL: packed while rows are few, however fast the network is.
        (SLOW, 0.0, 0.0, Path.PACKED),
        (SLOW, 0.01, 0.04, Path.PACKED),
        (SLOW, 0.5, 0.9, Path.PACKED),
        (SLOW, 1.0, 1.0, Path.DENSE),
        (FAST, 0.01, 0.04, Path.PACKED),
        (FAST, 0.1, 0.3, Path.PACKED),
        (FAST, 0.9, 1.0, Path.DENSE),
        # With NCCL at the network's speed: it has what is dense.
        (with_nccl(SLOW, 1), 0.01, 0.04, Path.PACKED),
        (with_nccl(SLOW, 1), 0.1, 0.35, Path.PACKED),
        (with_nccl(SLOW, 1), 0.9, 1.0, Path.INNER),
        (with_nccl(SLOW, 1), 1.0, 1.0, Path.INNER),
        # Where NCCL cannot use the network as well, all of it goes to the host.
        (with_nccl(SLOW, 2), 1.0, 1.0, Path.DENSE),
        # NVLink: nothing beats it but what is nearly empty.
        (with_nccl(FAST, 0.05), 0.1, 0.35, Path.INNER),
        (with_nccl(FAST, 0.05), 0.0, 0.0, Path.PACKED),
    ],
)
def test_the_cheapest_path_is_chosen(speeds: Speeds, own: float, union: float, path: Path) -> None:
    assert choose(MB_100, 4, Sample(own, union), speeds) is path


def test_what_is_chosen_is_predicted_to_be_no_slower_than_nccl() -> None:
    for factor in (0.01, 0.1, 0.5, 1.0, 2.0):
        for share in (0.0, 0.001, 0.01, 0.1, 0.5, 1.0):
            speeds = with_nccl(SLOW, factor)
            figures = MB_100, 8, Sample(share, min(1.0, 8 * share)), speeds
            chosen = choose(*figures)
            assert predict(chosen, *figures) <= predict(Path.INNER, *figures)


def test_predictions_follow_bytes_and_speeds() -> None:
    half, all_of_it = Sample(0.5, 0.5), Sample(1.0, 1.0)
    assert predict(Path.PACKED, MB_100, 4, half, SLOW) == pytest.approx(
        predict(Path.PACKED, MB_100, 4, all_of_it, SLOW) / 2
    )
    # 2 * 3/4 * 100 MB at 1 Gbit/s, and a little for the copies.
    assert predict(Path.DENSE, MB_100, 4, half, SLOW) == pytest.approx(1.2, rel=0.1)
    slower = SLOW._replace(down_s=1e-6)
    assert predict(Path.DENSE, MB_100, 4, half, slower) > 100
    assert predict(Path.PACKED, MB_100, 1, Sample(0, 0), SLOW) == 0


KIND = Kind(torch.float32, 25_000_000)


def marks_of(share: float) -> torch.Tensor:
    marks = torch.zeros(SAMPLED, dtype=torch.int32)
    marks[: round(share * SAMPLED)] = 1
    return marks


def take_turns(chooser: Chooser, count: int, share: float) -> list[tuple[Turn, Path]]:
    """Turns of a group of 4, all of whose ranks see the same."""
    turns = []
    for _ in range(count):
        turn = chooser.take_turn(KIND)
        if turn.samples:
            chooser.decide(turn, lambda _: marks_of(share), lambda marks: 4 * marks)
        turns.append((turn, turn.decision.result(timeout=0).path))
    return turns


def test_a_sample_is_taken_anew_every_so_many_calls() -> None:
    chooser = Chooser(4, FAST)
    turns = take_turns(chooser, PERIOD, 0.01) + take_turns(chooser, PERIOD, 1.0)
    assert [turn.samples for turn, _ in turns] == ([True] + [False] * (PERIOD - 1)) * 2
    assert [path for _, path in turns] == [Path.PACKED] * PERIOD + [Path.DENSE] * PERIOD


def test_a_turn_keeps_its_decision_while_the_next_one_is_made() -> None:
    """The thread that stages comes to calls later than the one that takes turns."""
    chooser = Chooser(4, FAST)
    (_, path), *_ = take_turns(chooser, PERIOD - 1, 0.01)
    last, first = chooser.take_turn(KIND), chooser.take_turn(KIND)
    assert first.samples
    assert not first.decision.done()
    assert last.decision.result(timeout=0).path is path is Path.PACKED


def test_shares_are_those_of_all_ranks() -> None:
    chooser = Chooser(2, FAST)
    turn = chooser.take_turn(KIND)
    others = (marks_of(1.0) - marks_of(0.75)).numpy()
    chooser.decide(turn, lambda _: marks_of(0.25), lambda marks: marks + others)
    assert turn.decision.result().sample == Sample(own=0.25, union=0.5)
    assert set(chooser.decisions()) == {"float32 x 25000000"}


def test_who_waits_for_a_decision_hears_why_there_is_none() -> None:
    chooser = Chooser(2, FAST)
    turn, later = chooser.take_turn(KIND), chooser.take_turn(KIND)

    def fail(_: torch.Tensor) -> torch.Tensor:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        chooser.decide(turn, lambda _: marks_of(0), fail)
    with pytest.raises(ConnectionError, match="gone"):
        later.decision.result(timeout=0)
    assert chooser.decisions() == {}


def test_many_kinds_do_not_pile_up() -> None:
    chooser = Chooser(2, FAST)
    for elements in range(3 * choice._KINDS_MAX):
        chooser.take_turn(Kind(torch.float32, elements))
    assert len(chooser._records) <= choice._KINDS_MAX
