"""Ranks that find each other, agree, and come to share a mesh."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sparsewire.errors import AuthenticationError, Error, MismatchError, ProtocolError, Timeout
from sparsewire.meeting import startup
from sparsewire.meeting.places.store_place import FileStore, StorePlace
from sparsewire.meeting.places.tcp_place import tcp_place
from sparsewire.meeting.startup import Joined
from sparsewire.options import Address, Options


def join_all(where: Path | Address, *options: Options, late: int | None = None):
    """Join as every rank at once, in threads; returns groups or errors, by rank."""
    deadline = time.monotonic() + 2

    def join(one: Options) -> Joined | Exception:
        time.sleep(0.5 if one.rank == late else 0)
        try:
            if isinstance(where, Path):
                place = StorePlace(FileStore(where), one, deadline)
            else:
                place = tcp_place(where, b"", one, deadline)
            with closing(place):
                return startup.join_group(one, place, {})
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(options)) as pool:
        return list(pool.map(join, options))


@contextmanager
def released(groups: list[Joined]) -> Iterator[list[Joined]]:
    try:
        yield groups
    finally:
        for group in groups:
            group.mesh.release()


def test_a_group_is_known_by_the_same_number_on_all_ranks(tmp_path: Path) -> None:
    groups = join_all(tmp_path, *(Options(rank, 3) for rank in range(3)))
    with released(groups):
        assert len({(group.mesh.identity, group.number) for group in groups}) == 1
        assert [group.mesh.rank for group in groups] == [0, 1, 2]
        assert all(group.members == [0, 1, 2] for group in groups)


def test_a_mesh_that_nobody_holds_leaves_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with released(join_all(tmp_path, Options(0, 2), Options(1, 2))):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_settings_that_differ_are_named_on_every_rank(tmp_path: Path) -> None:
    results = join_all(tmp_path, Options(0, 3), Options(1, 3), Options(2, 3, lanes=2))
    for rank, error in enumerate(results):
        assert isinstance(error, MismatchError)
        other = "'2' on rank 2" if rank < 2 else "'auto' on rank 0"
        assert "ranks disagree on lanes" in str(error)
        assert other in str(error)


@pytest.mark.parametrize("sizes", [(3, 2), (2, 3)])
@pytest.mark.parametrize("kind", ["files", "tcp"])
def test_world_sizes_that_differ_are_named_before_the_time_is_over(
    kind: str, sizes: tuple[int, ...], tmp_path: Path, free_port: int
) -> None:
    where = tmp_path if kind == "files" else Address("127.0.0.1", free_port)
    results = join_all(where, *(Options(rank, size) for rank, size in enumerate(sizes)))
    for rank, error in enumerate(results):
        assert isinstance(error, MismatchError)
        assert f"world size: {sizes[rank]} on rank {rank}, {sizes[1 - rank]} on" in str(error)


@pytest.mark.parametrize("sizes", [(3, 4, 3), (3, 3, 4), (3, 2, 3), (4, 3, 3)])
@pytest.mark.parametrize("late", [1, 2])
def test_one_wrong_world_size_is_named_on_all_ranks(
    sizes: tuple[int, ...], late: int, free_port: int
) -> None:
    ranks = [Options(rank, size) for rank, size in enumerate(sizes)]
    results = join_all(Address("127.0.0.1", free_port), *ranks, late=late)
    for rank, error in enumerate(results):
        assert isinstance(error, MismatchError)
        assert f"world size: {sizes[rank]} on rank {rank}" in str(error)


@pytest.mark.parametrize("late", [None, 2])
def test_a_rank_too_many_is_told_so(late: int | None, tmp_path: Path) -> None:
    """The others are all that they expect, and meet, perhaps long before it comes."""
    *groups, error = join_all(tmp_path, Options(0, 2), Options(1, 2), Options(2, 4), late=late)
    with released(groups):
        assert isinstance(error, MismatchError)
        assert "world size: 4 on rank 2, 2 on rank 0" in str(error)


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    (error,) = join_all(tmp_path, Options(0, 4))
    assert isinstance(error, Timeout)
    assert "ranks 1, 2, 3 did not show up" in str(error)


def test_secrets_that_differ_are_refused(tmp_path: Path) -> None:
    results = join_all(tmp_path, Options(0, 2), Options(1, 2, secret=bytes(16)))
    for rank, error in enumerate(results):
        assert isinstance(error, AuthenticationError)
        assert f"rank {1 - rank} has another secret" in str(error)


def test_loopback_is_refused_between_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["first host", "second host"])
    monkeypatch.setattr(startup, "host_identity", lambda: next(names))
    for error in join_all(tmp_path, Options(0, 2), Options(1, 2)):
        assert isinstance(error, Error)
        assert "rank 0 listens on 127.0.0.1" in str(error)
        assert "set SPARSEWIRE_IFNAME" in str(error)


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"port": "x"}', b'{"unknown": 1}']
)
def test_wrong_record_in_the_store(tmp_path: Path, value: bytes) -> None:
    FileStore(tmp_path).set("sparsewire/0/record 0/0", value)
    (error,) = join_all(tmp_path, Options(1, 2))
    assert isinstance(error, ProtocolError)
