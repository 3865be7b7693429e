"""The files that a command leaves its results in: checked before hours of work, written after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparsewire.errors import ExperimentError


@dataclass(frozen=True)
class ResultFiles:
    """Where to write the results, besides to the terminal; None where not wanted."""

    json: Path | None
    plot: Path | None

    def check(self) -> None:
        """Raise ExperimentError where a file has no folder, or the plot's name no known format."""
        for file in filter(None, (self.json, self.plot)):
            if file.is_dir() or not file.parent.is_dir():
                what = "it is a folder" if file.is_dir() else f"there is no folder {file.parent}"
                raise ExperimentError(f"cannot write {file}: {what}")
        if self.plot is not None:
            _check_format(self.plot)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Say which file cannot be written, and why."""
        try:
            yield
        except OSError as error:
            raise ExperimentError(f"cannot write {error.filename}: {error.strerror}") from None


def _check_format(plot: Path) -> None:
    # Importing matplotlib takes longer than many commands.
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if plot.suffix and plot.suffix[1:].lower() not in known:
        raise ExperimentError(f"cannot draw {plot}: its name must end in one of {', '.join(known)}")
