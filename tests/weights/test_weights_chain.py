"""The chain of versions: the way of fewest bytes, no forks, and anchors for those that lag."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire.errors import MismatchError
from sparsewire.weights.sync.chain import Chain, Entry


def made(version: int) -> bytes:
    return version.to_bytes(16, "big")


def delta(version: int, base: int, size: int = 10) -> Entry:
    return Entry(version, base, made(base), made(version), size, b"")


def anchor(version: int, size: int = 100) -> Entry:
    return Entry(version, None, b"", made(version), size, b"")


def chain_of(*entries: Entry, keep: int = 4) -> Chain:
    chain = Chain(keep)
    for entry in entries:
        chain.add(entry)
    return chain


def test_the_way_of_fewest_bytes() -> None:
    chain = chain_of(anchor(0), delta(1, 0), delta(2, 1, 60), delta(5, 2, 60), anchor(5))
    assert chain.path(made(5), 5) == []
    assert chain.path(made(2), 5) == [delta(5, 2, 60)]
    # 120 bytes of deltas, or 100 of the anchor.
    assert chain.path(made(1), 5) == [anchor(5)]
    assert chain.path(None, 1) == [anchor(0), delta(1, 0)]
    assert chain.path(None, 5) == [anchor(5)]
    assert chain.path(b"other", 5) == [anchor(5)]
    assert chain.path(made(5), 2) == [anchor(0), delta(1, 0), delta(2, 1, 60)]
    assert chain.path(None, 3) is None


def test_bits_that_came_back_are_a_base_as_each_version_that_has_them() -> None:
    back = Entry(3, 2, made(2), made(1), 10, b"")
    chain = chain_of(anchor(0), delta(1, 0), delta(2, 1), back)
    assert chain.version_of(made(1)) == 3
    assert chain.path(made(1), 3) == []
    assert chain.path(made(1), 2) == [delta(2, 1)]


def test_a_chain_does_not_fork() -> None:
    chain = chain_of(anchor(0), delta(1, 0))
    for wrong in (
        delta(1, 0),
        delta(2, 0),
        delta(0, 1),
        anchor(3),
        anchor(1)._replace(made=b"other"),
        delta(2, 1)._replace(had=b"other"),
    ):
        with pytest.raises(MismatchError):
            chain.add(wrong)
    assert chain.head == delta(1, 0)
    with pytest.raises(MismatchError):
        Chain(4).add(delta(1, 0))


@given(st.integers(1, 6), st.lists(st.integers(1, 80), max_size=40))
def test_every_reader_finds_a_way(keep: int, sizes: list[int]) -> None:
    """Readers that lag by up to `keep` get deltas alone if these are fewer bytes; others the whole.

    What is kept of the chain stays in proportion to what is not needed twice.
    """
    chain = chain_of(anchor(0), keep=keep)
    for number, size in enumerate(sizes, 1):
        chain.add(delta(number, number - 1, size))
        if chain.wants_anchor():
            chain.add(anchor(number))
        chain.prune()
        deltas = [each for each in chain.entries if not each.is_anchor]
        old = sum(each.size for each in deltas[:-keep])
        assert old <= 100
        assert len(deltas) <= 16 * keep
        for lag in range(min(keep, number) + 1):
            way = chain.path(made(number - lag), number)
            assert way is not None
            deltas = sum(sizes[number - lag : number])
            assert sum(each.size for each in way) <= deltas
        whole = chain.path(None, number)
        assert whole is not None
        # An anchor, and deltas behind it of not more bytes than it has.
        assert sum(each.size for each in whole) < 200


@given(st.integers(1, 6), st.lists(st.integers(1, 80), max_size=20), st.data())
def test_what_is_left_of_a_chain(keep: int, sizes: list[int], data: st.DataObject) -> None:
    """Of the messages that a store still has, those serve that make one run from an anchor on."""
    chain = chain_of(anchor(0), keep=keep)
    for number, size in enumerate(sizes, 1):
        chain.add(delta(number, number - 1, size))
        if chain.wants_anchor():
            chain.add(anchor(number))
        chain.prune()
    left = [each for each in chain.entries if data.draw(st.booleans())]
    again = Chain(keep)
    dropped = again.restore(data.draw(st.permutations(left)))
    assert sorted([*again.entries, *dropped], key=str) == sorted(left, key=str)
    if again.head:
        assert again.path(None, again.head.version)
        again.add(delta(again.head.version + 1, again.head.version))
    else:
        assert not any(each.is_anchor for each in left)
    whole = Chain(keep)
    assert whole.restore(chain.entries) == []
    assert list(whole.entries) == list(chain.entries)
