"""Recorded masks, replayed: non-zeros lie where a real gradient had them, and values are random."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import count, takewhile
from pathlib import Path

import numpy as np

from sparsewire.errors import InputError
from sparsewire.profile.records.trace import Head, Mask, Traced, path_of, read
from sparsewire.tools.bench.patterns import Array, Contribution, random_values


class Traces:
    """Traces that the ranks of a training recorded of the same steps and buckets."""

    def __init__(self, of_ranks: Sequence[Sequence[Traced]]) -> None:
        self._of_ranks = of_ranks

    @classmethod
    def of(cls, path: Path) -> Traces:
        """Read a directory of `sparsewire profile --trace`, or the file of one of its ranks.

        Raises InputError where there is none, or files do not belong together.
        """
        of_rank = (path_of(path, rank) for rank in count())
        files = list(takewhile(Path.exists, of_rank)) if path.is_dir() else [path]
        found = [read(file) for file in files]
        if not found or not found[0]:
            raise InputError(f"no trace in {path}: record with `sparsewire profile --trace`")
        for file, traced in zip(files, found, strict=True):
            if [_kind(each.head) for each in traced] != [_kind(each.head) for each in found[0]]:
                raise InputError(f"{file} is of another run than {files[0]}: record again")
        return cls(found)

    @property
    def ranks(self) -> int:
        """How many recorded."""
        return len(self._of_ranks)

    @property
    def dtype(self) -> str | None:
        """The dtype of all buckets; None if they differ."""
        dtypes = {each.head.dtype for each in self._of_ranks[0]}
        return dtypes.pop() if len(dtypes) == 1 else None

    def cases(self) -> Iterator[tuple[str, int, float]]:
        """Name, elements and density, of all ranks on average, of each bucket of each step."""
        for index, each in enumerate(self._of_ranks[0]):
            masks = [traced[index].mask() for traced in self._of_ranks]
            yield _name(each.head), each.head.elements, float(np.mean([m.mean() for m in masks]))

    def mask(self, name: str, rank: int) -> Mask:
        """The mask of a case for a rank; behind the recorded ranks it comes from later steps."""
        turn, recorded = divmod(rank, self.ranks)
        traced = self._of_ranks[recorded]
        head = next(each.head for each in traced if _name(each.head) == name)
        alike = [t for t in traced if _kind(t.head)[1:] == _kind(head)[1:]]
        steps = [each.head.step for each in alike]
        return alike[(steps.index(head.step) + turn) % len(alike)].mask()


@lru_cache(maxsize=1)
def traces_in(path: str) -> Traces:
    """The traces in a file or directory, read once."""
    return Traces.of(Path(path))


def replay(path: str, name: str, dtype: np.dtype, seed: int, rank: int) -> Contribution:
    """A rank's contribution in a case; any process can make any rank's data again."""
    mask = traces_in(path).mask(name, rank)
    places: Array = np.flatnonzero(mask)
    values = random_values(np.random.default_rng([seed, rank, 1]), len(places), 1, dtype)
    units = slice(None) if len(places) == len(mask) else places
    return Contribution(units, values, len(mask))


def _name(head: Head) -> str:
    return f"step {head.step}, bucket {head.bucket}"


def _kind(head: Head) -> tuple[int, int, int, str]:
    """The facts that must be alike among ranks and, except for the step, among steps."""
    return head.step, head.bucket, head.elements, head.dtype
