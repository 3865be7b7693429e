"""The files that a rank writes: its profile, from time to time and at the end, and some masks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparsewire.errors import InputError
from sparsewire.profile.records import recorded, trace
from sparsewire.profile.records.plan import Plan
from sparsewire.profile.records.recorded import RankProfile, Step
from sparsewire.profile.records.step_record import Noted, StepRecord

# Steps that are lost at most if the process dies.
_SAVE_EVERY = 25


class Output:
    """`profile` is this rank's, still without steps."""

    def __init__(self, plan: Plan, profile: RankProfile) -> None:
        self._plan, self._profile = plan, profile
        self._samples = 0

    @property
    def steps(self) -> int:
        """How many were recorded so far."""
        return len(self._profile.steps)

    @property
    def is_first_rank(self) -> bool:
        return self._profile.rank == 0

    def prepare(self) -> None:
        """Make the directory, without files of an earlier profile.

        Raises InputError where nothing can be written there.
        """
        directory = self._plan.directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory):
                pass
            for path in _files_of(directory, self._profile):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(
                f"nothing can be written to {directory} ({error.strerror}): "
                "give another directory, or set SPARSEWIRE_PROFILE to one"
            ) from None

    @property
    def profile(self) -> RankProfile:
        """The profile so far."""
        return self._profile

    def tell(self, **found: Any) -> None:
        """Note what is known at the end alone: fields of the rank's profile."""
        self._profile = replace(self._profile, **found)

    def add(self, step: Step) -> None:
        """Keep a step, and write all from time to time."""
        self._profile.steps.append(step)
        if self.steps % _SAVE_EVERY == 0:
            self.save()

    def sample(self, record: StepRecord) -> None:
        """Save the masks of the first, 2nd, 4th, 8th, ... sample, where a trace is wanted."""
        self._samples += 1
        if self._plan.trace and self._samples & (self._samples - 1) == 0:
            path = trace.path_of(self._plan.directory, self._profile.rank)
            trace.append(path, [_packed(record.number, noted) for noted in record.buckets])

    def save(self) -> None:
        """Write all steps so far, if there are any."""
        if self._profile.steps:
            recorded.save(self._profile, self._plan.directory)


def _packed(step: int, noted: Noted) -> bytes:
    assert noted.marks is not None, "only samples are traced"
    head = trace.Head(step, noted.index, list(noted.parameters), noted.elements, noted.dtype)
    return trace.pack(head, noted.marks.bytes.cpu().numpy())


def _files_of(directory: Path, profile: RankProfile) -> Iterator[Path]:
    """Files that an earlier run may have left; for rank 0 also those of further ranks."""
    for path in directory.glob("rank-*"):
        kind, number = path.suffix, path.stem.removeprefix("rank-")
        if kind in (".json", ".trace") and number.isdecimal():
            gone = profile.rank == 0 and int(number) >= profile.world_size
            if gone or int(number) == profile.rank:
                yield path
