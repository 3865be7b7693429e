"""Measures the link of many ranks: a sample does, and tells all others where they meet.

To measure is to talk to everybody, which connects everybody with everybody.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from sparsewire._core import Communicator as Core
from sparsewire.collectives.communicator import Communicator
from sparsewire.engine import Engine
from sparsewire.errors import Error
from sparsewire.meeting.network.link_probe import measure_link
from sparsewire.meeting.places.place import Place
from sparsewire.meeting.startup import Joined
from sparsewire.options import LinkFigures, Options

SAMPLE = 16


def measure(
    communicator: Communicator, joined: Joined, place: Place, options: Options
) -> LinkFigures:
    """Measure the link; a collective call that gives every rank the same figures, to the last bit.

    Raises the errors of collectives on the ranks that measure, and Error on the others.
    """
    if options.world_size <= SAMPLE:
        return measure_link(communicator, options.start_timeout)
    sample = [number * options.world_size // SAMPLE for number in range(SAMPLE)]
    found: dict[str, object] = {}
    failure: Error | None = None
    if options.rank in sample:
        try:
            found = {"figures": _measure_in(sample, joined, options)}
        except Error as error:
            failure, found = error, {"failure": str(error)}
    answers = [json.loads(answer) for answer in place.all_gather(json.dumps(found).encode())]
    if failure is not None:
        raise failure
    for rank in sample:
        if "failure" in answers[rank]:
            raise Error(f"rank {rank} could not measure the link: {answers[rank]['failure']}")
    return LinkFigures(*map(float, answers[0]["figures"]))


def _measure_in(sample: list[int], joined: Joined, options: Options) -> LinkFigures:
    core = Core(
        joined.mesh.core,
        joined.number + 1,
        [joined.members[rank] for rank in sample],
        sample.index(options.rank),
        block=options.block,
        window=options.window,
    )
    alone = replace(options, rank=sample.index(options.rank), world_size=len(sample))
    with Communicator(Engine(core, alone), alone) as among_few:
        figures = measure_link(among_few, options.start_timeout)
    return figures._replace(byte_s=figures.byte_s * crowd(sample, joined.hosts))


def crowd(sample: list[int], hosts: list[int]) -> float:
    """How many ranks share a host's link for each that has measured it, where they are the most."""
    ranks, measuring = Counter(hosts), Counter(hosts[rank] for rank in sample)
    return max(ranks[host] / count for host, count in measuring.items())
