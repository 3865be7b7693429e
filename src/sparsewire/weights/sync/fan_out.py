"""Who gets a message from whom, so that every link carries it about once. Pure.

A message is cut into stripes, and each stripe goes down a tree of its own. A relay passes on one
stripe only, to as many as there are stripes, so it sends as many bytes as it gets. The publisher
sends each stripe once. (The trees of Castro et al., "SplitStream: high-bandwidth multicast in
cooperative environments", SOSP 2003.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

STRIPES = 2
# A message that is shorter goes down one tree.
_STRIPE_BYTES_MIN = 64 << 10


class Span(NamedTuple):
    """Bytes of a message, from `begin` to `end`."""

    begin: int
    end: int


def stripes(size: int) -> list[Span]:
    """The stripes of a message of `size` bytes: all ends cut it alike."""
    count = STRIPES if size >= STRIPES * _STRIPE_BYTES_MIN else 1
    edges = [size * number // count for number in range(count + 1)]
    return [Span(*pair) for pair in pairwise(edges)]


class Candidate(NamedTuple):
    """A reader that waits for a message: whether it passes on what it gets, where it stands (any
    name of a site), and the speed of its link in Mbit/s, zero where it did not say."""

    relays: bool
    site: str = ""
    mbits: float = 0


Sources = list[int | None]
"""For each stripe the reader to get it from; None: the publisher."""


def sources(readers: Sequence[Candidate], count: int) -> list[Sources]:
    """Where each of the readers gets each of `count` stripes.

    Between sites each byte goes once, to the first relay of a site. Faster relays stand nearer to
    the publisher.
    """
    found: list[Sources] = [[None] * count for _ in readers]
    sites = _by_site(readers)
    heads = [site[0] for site in sites if readers[site[0]].relays]
    if len(sites) == 1:
        _fill(found, readers, sites[0], None)
        return found
    _fill(found, readers, heads, None)
    for site in sites:
        if site[0] in heads:
            _fill(found, readers, site[1:], site[0])
    return found


def _by_site(readers: Sequence[Candidate]) -> list[list[int]]:
    """The readers of each site, relays first, and fast before slow ones."""
    order = sorted(
        range(len(readers)), key=lambda each: (not readers[each].relays, -readers[each].mbits)
    )
    found: dict[str, list[int]] = {}
    for reader in order:
        found.setdefault(readers[reader].site, []).append(reader)
    return list(found.values())


def _fill(
    found: list[Sources], readers: Sequence[Candidate], members: Sequence[int], top: int | None
) -> None:
    """Set the sources of `members`, relays first, in trees below `top`."""
    count = len(found[0]) if found else 0
    relays = sum(readers[each].relays for each in members)
    for stripe in range(count):
        for member, parent in zip(members, _tree(relays, len(members), stripe, count), strict=True):
            found[member][stripe] = top if parent is None else members[parent]


def _tree(relays: int, members: int, stripe: int, count: int) -> list[int | None]:
    """The parent of each member in the tree of one stripe; None for the top."""
    inner = list(range(stripe % max(relays, 1), relays, count))
    within = set(inner)
    order = inner + [each for each in range(members) if each not in within]
    found: list[int | None] = [None] * members
    for place, member in enumerate(order):
        if place and inner:
            above = (place - 1) // count
            found[member] = inner[above if above < len(inner) else place % len(inner)]
    return found
