"""The link's figures: settings, and what real ranks measure and agree on."""

from __future__ import annotations

import math
import os
import signal
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import run_ranks

import sparsewire
from sparsewire._core import ALGORITHMS, choose, predict
from sparsewire.meeting import sampled_link
from sparsewire.meeting.network import link_probe
from sparsewire.options import LinkFigures, parse_link_figures, resolve

GIGABIT = LinkFigures(1e-4, 8e-9, 12e-9)

# Up to here, in float32, one owner serves a vector whatever the predictions say.
SHORT = 8192
RANK = {"RANK": "0", "WORLD_SIZE": "2"}


def test_figures_read_back_as_written() -> None:
    assert parse_link_figures("5e-5, 1e-9,4e-9") == LinkFigures(5e-5, 1e-9, 4e-9)
    assert parse_link_figures(str(LinkFigures(5e-5, 1e-9, 4e-9))) == (5e-5, 1e-9, 4e-9)
    assert resolve({**RANK, "SPARSEWIRE_LINK": "1,2,3"}).link == (1.0, 2.0, 3.0)
    assert resolve(RANK).link is None


@pytest.mark.parametrize("text", ["1", "1,2", "1,2,3,4", "a,1,1", "0,1,1", "1,-1,1", "1,1,inf"])
def test_other_figures_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"SPARSEWIRE_LINK=.*three positive numbers"):
        resolve({**RANK, "SPARSEWIRE_LINK": text})


def link() -> tuple[tuple[float, float, float], dict[str, int]]:
    with sparsewire.init() as comm:
        return comm.link, comm.stats()


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_measure_the_same_figures(world_size: int) -> None:
    (first, _), *others = run_ranks(world_size, link)
    assert all(math.isfinite(figure) and 0 < figure < 10 for figure in first)
    assert all(figures == first for figures, _ in others)


@pytest.mark.parametrize(
    ("sample", "hosts", "expected"),
    [
        ([0, 1, 2, 3], [0, 0, 0, 0], 1.0),
        ([0, 4], [0] * 8, 4.0),
        ([0, 4], [0] * 4 + [4] * 4, 4.0),
        ([0, 1, 4], [0] * 4 + [4] * 4, 4.0),
        ([0, 2, 4, 6], [0, 0, 0, 0, 4, 5, 6, 7], 2.0),
    ],
)
def test_a_sample_stands_for_all_that_share_a_host(
    sample: list[int], hosts: list[int], expected: float
) -> None:
    assert sampled_link.crowd(sample, hosts) == expected


def fail_in_the_sample() -> str:
    sampled_link.SAMPLE = 2  # type: ignore[misc]
    sampled_link._measure_in = refuse  # type: ignore[assignment]
    try:
        sparsewire.init(timeout=20).close()
    except sparsewire.Error as error:
        return str(error)
    return ""


def refuse(*_: object) -> LinkFigures:
    raise sparsewire.Error("not today")


def test_a_sample_that_fails_is_an_error_on_every_rank() -> None:
    first, second, third, fourth = run_ranks(4, fail_in_the_sample)
    assert first == third == "not today"
    assert second == fourth == "rank 0 could not measure the link: not today"


def test_counters_start_behind_the_measurement() -> None:
    for _, stats in run_ranks(2, link):
        assert stats["operations"] == 0
        assert stats["segments_sent"] == 0


def test_given_figures_are_taken_as_they_are() -> None:
    environment = {"SPARSEWIRE_LINK": "1e-3,2e-9,3e-9"}
    assert [figures for figures, _ in run_ranks(2, link, environment=environment)] == [
        (1e-3, 2e-9, 3e-9)
    ] * 2


def link_of_own(number: int) -> str:
    os.environ["SPARSEWIRE_LINK"] = f"1,1,{1 + number * int(os.environ['RANK'])}"
    try:
        sparsewire.init(timeout=10).close()
    except sparsewire.MismatchError as error:
        return str(error)
    return "agreed"


def test_ranks_must_be_given_the_same_figures() -> None:
    assert run_ranks(2, link_of_own, 0) == ["agreed"] * 2
    for message in run_ranks(2, link_of_own, 1):
        assert "ranks disagree on link" in message
        assert "SPARSEWIRE_LINK alike" in message


def number_of_the_first_failure() -> tuple[int, int]:
    with sparsewire.init(timeout=20) as comm:
        x = np.ones(100 + comm.rank, np.float32)
        works = [comm.all_reduce(x, async_op=True) for _ in range(2)]
        numbers = []
        for work in works:
            work._operation.wait()
            message = str(work.exception())
            numbers.append(int(message.split("(operation ")[1].split(")")[0]))
        return numbers[0], numbers[1]


def test_numbers_in_errors_start_behind_the_measurement() -> None:
    assert run_ranks(2, number_of_the_first_failure) == [(0, 1)] * 2


def die_while_measuring(victim: int) -> Exception | None:
    if int(os.environ["RANK"]) == victim:
        # What comes behind the small messages.
        link_probe._byte_seconds = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore
    try:
        sparsewire.init(timeout=20).close()
    except sparsewire.Error as error:
        return error
    return None


@pytest.mark.chaos
def test_rank_that_dies_meanwhile_is_named() -> None:
    for error in run_ranks(3, die_while_measuring, 1, dying=[1])[::2]:
        assert isinstance(error, sparsewire.PeerLost)
        assert "rank 1" in str(error)


def stop_while_measuring() -> str:
    if os.environ["RANK"] == "1":
        link_probe._byte_seconds = lambda *_: time.sleep(2.5)  # type: ignore
    try:
        sparsewire.init(timeout=1.0).close()
    except sparsewire.Timeout as error:
        return str(error)
    return ""


def test_rank_that_stops_meanwhile_is_a_timeout() -> None:
    assert all(run_ranks(2, stop_while_measuring))


def test_one_rank_alone_measures_nothing() -> None:
    with sparsewire.init(rank=0, world_size=1) as comm:
        assert comm.engine.first_operation == 0


def chosen(length: int, density: float, ranks: int, link: LinkFigures = GIGABIT) -> str:
    code = choose(length, 4, [max(1, round(density * length))] * ranks, ranks, *link)
    return next(name for name, known in ALGORITHMS.items() if known == code)


@given(length=st.integers(1, SHORT), density=st.floats(1e-6, 1.0), ranks=st.integers(2, 64))
def test_what_is_short_needs_no_joins(length: int, density: float, ranks: int) -> None:
    assert chosen(length, density, ranks) == "stream"


def test_what_is_nearly_empty_goes_straight_to_all() -> None:
    assert chosen(25_000_000, 1e-6, 4) == "allgather"


@pytest.mark.parametrize("ranks", [4, 8])
def test_what_is_full_goes_through_owners(ranks: int) -> None:
    assert chosen(25_000_000, 1.0, ranks) == "stream"
    assert chosen(25_000_000, 0.3, ranks) == "stream"


def test_long_latency_favours_one_message() -> None:
    near, far = LinkFigures(1e-6, 8e-9, 12e-9), LinkFigures(0.1, 8e-9, 12e-9)
    assert chosen(200_000, 0.2, 4, near) == "stream"
    assert chosen(200_000, 0.2, 4, far) == "allgather"


@given(
    length=st.integers(SHORT + 1, 10**8),
    density=st.floats(1e-6, 1.0),
    ranks=st.integers(2, 64),
    latency_s=st.floats(1e-6, 0.1),
)
def test_the_fastest_by_prediction_is_chosen(
    length: int, density: float, ranks: int, latency_s: float
) -> None:
    load = (length, 4, [max(1, round(density * length))] * ranks, ranks, latency_s, 1e-9, 12e-9)
    seconds = {
        name: predict(ALGORITHMS[name], *load)
        for name in ("allgather", "ssar_recursive_double", "ssar_split_allgather", "stream")
    }
    assert seconds[chosen(length, density, ranks, LinkFigures(latency_s, 1e-9, 12e-9))] == min(
        seconds.values()
    )


@pytest.mark.parametrize("name", ["stream", "ssar_split_allgather"])
def test_ranks_of_a_host_share_what_crosses(name: str) -> None:
    slow = (1e-6, 1e-6, 1e-12)  # Bytes are all that counts.
    load = (10_000_000, 4, [1000] * 8)
    spread, shared = (predict(ALGORITHMS[name], *load, hosts, *slow) for hosts in (8, 2))
    # Each of two hosts sends the sums of four ranks once; before, every rank sent to seven others.
    assert shared / spread == pytest.approx((8 - 4) / 4 * (4 + 8) / (7 * (1 + 8)), rel=0.01)


def test_a_gather_crosses_to_every_rank_of_other_hosts() -> None:
    slow = (1e-6, 1e-6, 1e-12)
    load = (10_000_000, 4, [1000] * 8)
    spread, shared = (predict(ALGORITHMS["allgather"], *load, hosts, *slow) for hosts in (8, 2))
    assert shared / spread == pytest.approx(4 / 7, rel=0.01)


@pytest.mark.parametrize("hosts", [0, 9])
def test_hosts_that_cannot_be_are_refused(hosts: int) -> None:
    with pytest.raises(ValueError, match="hosts"):
        choose(1000, 4, [10] * 8, hosts, *GIGABIT)
