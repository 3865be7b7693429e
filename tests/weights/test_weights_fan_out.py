"""Who gets a message from whom: every reader gets every stripe, and no link carries it twice."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire.weights.sync.fan_out import STRIPES, Candidate, Span, sources, stripes


@given(st.integers(0, 10**9))
def test_stripes_cover_a_message(size: int) -> None:
    found = stripes(size)
    assert found[0].begin == 0
    assert found[-1].end == size
    assert all(before.end == after.begin for before, after in pairwise(found))
    assert all(isinstance(each, Span) for each in found)


def depth(found: list[list[int | None]], reader: int, stripe: int) -> int:
    """How many hops a stripe goes to a reader; fails for one that goes round in circles."""
    hops = 1
    while (above := found[reader][stripe]) is not None:
        reader, hops = above, hops + 1
        assert hops <= len(found)
    return hops


candidates = st.builds(
    Candidate, st.booleans(), st.sampled_from(["", "a", "b"]), st.sampled_from([0.0, 100.0, 1e3])
)


@given(st.lists(candidates, max_size=40), st.integers(1, 3))
def test_every_reader_is_served(readers: list[Candidate], count: int) -> None:
    found = sources(readers, count)
    assert len(found) == len(readers)
    for reader in range(len(readers)):
        for stripe in range(count):
            depth(found, reader, stripe)
    senders = {above for own in found for above in own if above is not None}
    assert all(readers[each].relays for each in senders)


@pytest.mark.parametrize("readers", [1, 2, 3, 32, 1000])
def test_a_relay_sends_as_much_as_it_gets(readers: int) -> None:
    found = sources([Candidate(relays=True)] * readers, STRIPES)
    sent = Counter(above for own in found for above in own)
    assert sent.pop(None) == STRIPES
    assert all(count <= STRIPES for count in sent.values())
    deepest = max(depth(found, reader, stripe) for reader in range(readers) for stripe in (0, 1))
    assert deepest <= readers.bit_length() + 1


def test_between_sites_a_message_goes_once() -> None:
    readers = [Candidate(relays=True, site=f"site {number % 4}") for number in range(40)]
    found = sources(readers, STRIPES)
    for stripe in range(STRIPES):
        entering = [
            reader
            for reader, own in enumerate(found)
            if (above := own[stripe]) is None or readers[above].site != readers[reader].site
        ]
        assert sorted(readers[each].site for each in entering) == [f"site {n}" for n in range(4)]


def test_fast_readers_stand_near_the_publisher() -> None:
    readers = [Candidate(relays=True, mbits=mbits) for mbits in [10] * 30 + [1000] * 2]
    found = sources(readers, STRIPES)
    for fast in (30, 31):
        assert min(depth(found, fast, stripe) for stripe in range(STRIPES)) == 1
