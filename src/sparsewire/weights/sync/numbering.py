"""Which number the next version of a chain may have: no number ever stands for two versions."""

from __future__ import annotations

from sparsewire.errors import MismatchError
from sparsewire.weights.sync.chain import check_version


def next_number(wanted: int | None, newest: int, ahead: int | None, lost: int) -> int:
    """`wanted` itself, or for None the number after `newest`, which is -1 for an empty chain.

    `ahead` is the newest version of a reader that the chain has not, `lost` the newest one whose
    message was damaged. Raises InputError for no number, MismatchError for one that was there.
    """
    number = max(newest, lost) + 1 if wanted is None else wanted
    check_version(number)
    _check_free(number, newest, ahead, lost)
    return number


def _check_free(number: int, newest: int, ahead: int | None, lost: int) -> None:
    if number <= newest:
        raise MismatchError(
            f"version {number} is not newer than {newest}, the newest of the chain: versions only "
            "grow, or readers could not tell them apart"
        )
    if number <= lost:
        raise MismatchError(
            f"version {lost} was published, and its message was damaged in the directory: publish "
            f"as version={lost + 1} or above, so that no number stands for two versions"
        )
    if ahead is not None and number <= ahead:
        raise MismatchError(
            f"a reader has version {ahead}, which this publisher has not made: its directory is "
            f"older than its readers, or another publisher was here. Publish as version={ahead + 1}"
            " or above, so that no number stands for two versions"
        )
