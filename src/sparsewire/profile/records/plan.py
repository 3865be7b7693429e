"""The plan of a recording: options state it, and environment variables tell it to the ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparsewire.errors import InputError

DIRECTORY = "sparsewire-profile"
"""The default folder of profiles."""

SETTING = "SPARSEWIRE_PROFILE"
_STEPS, _WARMUP = f"{SETTING}_STEPS", f"{SETTING}_WARMUP"
_EVERY, _TRACE = f"{SETTING}_EVERY", f"{SETTING}_TRACE"

# DDP forms its buckets anew in the second step.
_LEAST_WARMUP = 2


@dataclass(frozen=True)
class Plan:
    """`steps` are recorded, behind `warmup` others; of each `every`-th densities are sampled.

    Without `every`, as often as costs little. `trace` saves masks of some of the samples.
    Raises InputError for numbers that make no sense.
    """

    directory: Path
    steps: int = 50
    warmup: int = 5
    every: int | None = None
    trace: bool = False

    def __post_init__(self) -> None:
        every = 1 if self.every is None else self.every
        if self.steps < 1 or self.warmup < _LEAST_WARMUP or every < 1:
            raise InputError(
                "a profile needs 1 step or more, "
                f"{_LEAST_WARMUP} or more before them, and samples every 1 or more"
            )

    def settings(self) -> dict[str, str]:
        """Environment variables that tell a process of the plan."""
        given = {
            SETTING: str(self.directory),
            _STEPS: str(self.steps),
            _WARMUP: str(self.warmup),
            _TRACE: str(int(self.trace)),
        }
        return given if self.every is None else {**given, _EVERY: str(self.every)}

    @classmethod
    def of_settings(cls, settings: Mapping[str, str]) -> Plan | None:
        """The plan that a process was told; None if there is none."""
        directory = settings.get(SETTING)
        if not directory:
            return None
        every = settings.get(_EVERY)
        return cls(
            Path(directory),
            _number(settings, _STEPS, cls.steps),
            _number(settings, _WARMUP, cls.warmup),
            _number(settings, _EVERY, 1) if every else None,
            settings.get(_TRACE, "") not in ("", "0"),
        )


def _number(settings: Mapping[str, str], name: str, default: int) -> int:
    text = settings.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{name}={text} is no whole number") from None
