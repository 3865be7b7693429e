"""The files that a command leaves its results in: checked before hours of work, written after."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsewire.errors import ExperimentError
from sparsewire.measure.conditions import conditions

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ResultFiles:
    """Where to write the results, besides to the terminal; None where not wanted.

    `conditions` are those of the moment at which this is made: before the work.
    """

    json: Path | None = None
    plot: Path | None = None
    conditions: Mapping[str, Any] = field(default_factory=conditions)

    def checked(self) -> ResultFiles:
        """The same; raises ExperimentError for no folder, or a plot's name of no known format."""
        for file in filter(None, (self.json, self.plot)):
            if file.is_dir() or not file.parent.is_dir():
                what = "it is a folder" if file.is_dir() else f"there is no folder {file.parent}"
                raise ExperimentError(f"cannot write {file}: {what}")
        if self.plot is not None:
            _check_format(self.plot)
        return self

    def write(self, record: Mapping[str, Any], draw: Callable[[], Figure] | None) -> None:
        """Write what is wanted; raises ExperimentError, which says why, where that fails."""
        try:
            if self.json is not None:
                everything = _plain({"conditions": self.conditions, **record})
                self.json.write_text(json.dumps(everything, indent=1, allow_nan=False) + "\n")
            if self.plot is not None and draw is not None:
                draw().savefig(self.plot, dpi=150)
        except OSError as error:
            raise ExperimentError(f"cannot write {error.filename}: {error.strerror}") from None


def _check_format(plot: Path) -> None:
    # Importing matplotlib takes longer than many commands.
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if plot.suffix and plot.suffix[1:].lower() not in known:
        raise ExperimentError(f"cannot draw {plot}: its name must end in one of {', '.join(known)}")


def _plain(value: Any) -> Any:
    """The same, where numbers that JSON has no words for are null."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value
