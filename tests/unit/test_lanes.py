"""How many lanes ranks take by themselves, and what of a machine that follows from."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
from test_mesh import join_all, released

from sparsewire.errors import MismatchError
from sparsewire.meeting import startup
from sparsewire.meeting.network.lanes import (
    LANES_AUTO_MAX,
    Lanes,
    lanes_of,
    processors_of,
    proposals,
)
from sparsewire.meeting.network.resources import Resources, own_resources, quota
from sparsewire.options import Options


def rank(
    host: int = 0, cores: int = 16, first: int = 0, speed: int = 0, **facts: object
) -> Resources:
    """One with the processors from `first` on, on a machine of its host's own."""
    mask = f"{((1 << cores) - 1) << first:x}"
    return Resources(f"host{host}", f"machine{host}", mask, 0.0, 1, speed)._replace(**facts)


def hosts(count: int, ranks: int = 1, **facts: int) -> list[Resources]:
    return [rank(host, **facts) for host in range(count) for _ in range(ranks)]


@pytest.mark.parametrize("speed", [0, 100, 1000, 10_000, 100_000])
@pytest.mark.parametrize("interfaces", [1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 4])
def test_two_processors_have_one_lane_for_each_interface(
    speed: int, interfaces: int, ranks: int
) -> None:
    resources = [
        each._replace(interfaces=interfaces) for each in hosts(2, ranks, cores=2, speed=speed)
    ]
    assert lanes_of(resources).number == interfaces


@pytest.mark.parametrize(
    ("speed", "expected"),
    [(0, 1), (1000, 1), (5000, 1), (5001, 2), (10_000, 2), (25_000, 5), (100_000, LANES_AUTO_MAX)],
)
def test_fast_links_take_more_lanes(speed: int, expected: int) -> None:
    assert lanes_of(hosts(2, speed=speed)).number == expected


@pytest.mark.parametrize(
    ("ranks", "expected"), [(1, 4), (2, 4), (3, 4), (4, 3), (5, 2), (6, 1), (8, 1), (32, 1)]
)
def test_ranks_of_a_host_share_its_processors_and_one_is_the_programs(
    ranks: int, expected: int
) -> None:
    assert lanes_of(hosts(1, ranks)).number == expected


def test_ranks_of_a_host_share_its_link() -> None:
    assert lanes_of(hosts(2, 1, speed=20_000)).number == 4
    assert lanes_of(hosts(2, 2, speed=20_000)).number == 2
    assert lanes_of(hosts(2, 4, speed=20_000)).number == 1


def test_ranks_with_processors_of_their_own_share_none() -> None:
    pinned = [rank(cores=4, first=4 * number) for number in range(4)]
    assert [each.number for each in proposals(pinned)] == [3] * 4
    halves = [rank(cores=8, first=8 * (number // 2)) for number in range(4)]
    assert [each.number for each in proposals(halves)] == [3] * 4


def test_emulated_hosts_share_the_processors_of_their_machine() -> None:
    apart = hosts(8, speed=100_000)
    assert lanes_of(apart).number == LANES_AUTO_MAX
    together = [each._replace(machine="one") for each in apart]
    assert lanes_of(together).number == 1


def test_a_quota_is_shared_by_the_ranks_of_its_host() -> None:
    assert lanes_of([each._replace(quota=6.5) for each in hosts(1, 2)]).number == 2
    assert lanes_of([each._replace(quota=1.0) for each in hosts(1, 2)]).number == 1


def test_lanes_are_as_many_for_each_interface() -> None:
    both = [each._replace(interfaces=2) for each in hosts(2, cores=8, speed=25_000)]
    assert lanes_of(both).number == 6  # Three free processors for each, and links for five.
    three = [each._replace(interfaces=3) for each in hosts(2, cores=64, speed=100_000)]
    assert lanes_of(three).number == 6
    many = [each._replace(interfaces=12) for each in hosts(2, cores=64)]
    assert lanes_of(many).number == 12


def test_all_take_the_least_that_one_proposes_and_know_why() -> None:
    resources = [rank(0, speed=25_000), rank(1, cores=4, speed=25_000)]
    assert [each.number for each in proposals(resources)] == [5, 3]
    assert lanes_of(resources) == Lanes(3, "a rank has 4 processors, one of them for the program")
    slow = [rank(0, speed=10_000), rank(1, speed=25_000)]
    assert lanes_of(slow) == Lanes(2, "a rank has a link of 10000 Mbit/s; 5000 keep a lane busy")
    assert lanes_of(hosts(2)) == Lanes(1, "the speed of the link is not known")
    assert lanes_of(hosts(1)) == Lanes(4, "the memory of one host is busy with so many")


def test_lanes_get_processors_of_their_own() -> None:
    resources = hosts(2, 4)
    dealt = [processors_of(resources, number, 2) for number in range(8)]
    assert dealt[:4] == [[0, 1], [4, 5], [8, 9], [12, 13]]
    assert dealt[4:] == dealt[:4]
    pinned = [rank(cores=4, first=4 * number) for number in range(2)]
    assert [processors_of(pinned, number, 3) for number in range(2)] == [[0, 1, 2], [4, 5, 6]]


def test_lanes_are_left_to_the_system_where_processors_are_few() -> None:
    assert processors_of(hosts(1, 4), 0, 1) == []
    assert processors_of(hosts(1, 4), 0, 4) == []
    assert processors_of(hosts(1, 1, cores=2), 0, 2) == []
    assert processors_of([each._replace(quota=8.0) for each in hosts(1, 2)], 0, 2) == []
    overlapping = [rank(cores=8), rank(cores=8, first=4)]
    assert processors_of(overlapping, 0, 2) == []


@pytest.mark.parametrize("affinity", ["auto", "off"])
def test_threads_of_lanes_keep_to_their_processors(
    affinity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a rank may use the last of the machine's processors and two that it has not got."""
    last = max(os.sched_getaffinity(0))
    monkeypatch.setattr(startup, "own_resources", lambda _: rank(cores=3, first=last))
    monkeypatch.setattr(startup, "host_identity", lambda: next(names))
    monkeypatch.setattr(startup, "_check_reachable", lambda _: None)
    monkeypatch.setattr(startup, "_neighbours", lambda *_: {})
    names = iter(["one", "other"])
    told = iter([rank(0, cores=3, first=last), rank(1, cores=3, first=last)])
    monkeypatch.setattr(startup, "own_resources", lambda _: next(told))
    before = pinned_threads(last)
    options = Options(0, 2, lanes=2, affinity=affinity)
    with released(join_all(tmp_path, options, replace(options, rank=1))):
        assert pinned_threads(last) - before == (2 if affinity == "auto" else 0)


def pinned_threads(core: int) -> int:
    """Of this process, to one processor."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        # Threads of other tests may end meanwhile.
        with contextlib.suppress(FileNotFoundError):
            count += f"Cpus_allowed_list:\t{core}\n" in (task / "status").read_text()
    return count


def test_own_means_are_those_of_this_process() -> None:
    own = own_resources(["127.0.0.1", "127.0.0.2"])
    assert own.interfaces == 2
    assert int(own.processors, 16).bit_count() == len(os.sched_getaffinity(0))
    assert own.quota >= 0


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/job/rank\n", {"job/cpu.max": "250000 100000\n"}, 2.5),
        ("0::/job\n", {"job/cpu.max": "max 100000\n", "cpu.max": "400000 100000\n"}, 4.0),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 0.0),
        (
            "3:cpu,cpuacct:/job\n0::/\n",
            {"cpu/job/cpu.cfs_quota_us": "50000\n", "cpu/job/cpu.cfs_period_us": "100000\n"},
            0.5,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 0.0),
        ("nonsense\n", {}, 0.0),
    ],
)
def test_the_quota_of_control_groups(
    own: str, files: dict[str, str], expected: float, tmp_path: Path
) -> None:
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "own").write_text(own)
    assert quota(tmp_path, tmp_path / "own") == expected


def test_ranks_agree_where_they_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([rank(cores=4), rank(cores=16)])
    monkeypatch.setattr(startup, "own_resources", lambda _: next(told))
    monkeypatch.setattr(startup, "host_identity", lambda: "host")
    monkeypatch.setattr(startup, "_check_reachable", lambda _: None)
    with released(join_all(tmp_path, Options(0, 2), Options(1, 2))) as groups:
        # Two ranks share four processors, and one of them has twelve more.
        assert [group.mesh.lanes for group in groups] == [1, 1]


@pytest.mark.parametrize("asked", [None, 3])
def test_a_mesh_has_the_lanes_that_were_agreed_or_asked_for(
    asked: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "own_resources", lambda _: rank(cores=16))
    options = Options(0, 2, lanes=asked)
    with released(join_all(tmp_path, options, replace(options, rank=1))) as groups:
        assert [group.mesh.lanes for group in groups] == [asked or 4] * 2


def test_who_asks_for_a_number_and_who_does_not_are_told(tmp_path: Path) -> None:
    for error in join_all(tmp_path, Options(0, 2), Options(1, 2, lanes=1)):
        assert isinstance(error, MismatchError)
        assert "ranks disagree on lanes" in str(error)
