"""`sparsewire weights`: what changes between versions of a model, in files and over networks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparsewire.tools.cli.command import Commands
from sparsewire.tools.cli.weights_failure import failing
from sparsewire.tools.cli.weights_network import pull, serve, status

if TYPE_CHECKING:
    from sparsewire.weights.files import Move
    from sparsewire.weights.versions.message import Delta
    from sparsewire.weights.versions.snapshot import Snapshot

_VERSION = click.Path(exists=True, path_type=Path)
_NEW_FILE = click.Path(path_type=Path)
_DELTA = click.Path(exists=True, path_type=Path)
_OWN = "sparsewire"


@click.group(cls=Commands)
def weights() -> None:
    """Store, send and apply new versions of a model's weights in the bytes of what changed.

    A version is a file of safetensors, or a directory with such files, as Hugging Face has them.
    """


@weights.command()
@click.argument("old", type=_VERSION)
@click.argument("new", type=_VERSION)
@click.option("-o", "--output", required=True, type=_NEW_FILE, help="File for the delta.")
@click.option(
    "--format",
    "form",
    type=click.Choice([_OWN, "slime", "modelexpress"]),
    default=_OWN,
    help="Whose: sparsewire's is a file, and the others are directories.",
)
@click.option(
    "--encoding",
    type=click.Choice(["xor", "overwrite"]),
    default="xor",
    help="Of changes in a directory.",
)
@click.option(
    "--version", default="", show_default=False, help="Name of the new version.  [default: NEW]"
)
@click.option(
    "--base-version",
    default="",
    show_default=False,
    help="Name of the old version.  [default: OLD]",
)
def diff(
    old: Path,
    new: Path,
    output: Path,
    form: str,
    encoding: str,
    version: str,
    base_version: str,
) -> None:
    """Write what changed from OLD to NEW.

    The delta is lossless, bit for bit, and bound to OLD by checksums. A tensor keeps its dtype and
    shape; tensors may come and go.

    With --format slime (SGLang, miles) or modelexpress it is a directory as these store it, and
    tensors may not come and go. slime counts versions: the new one is what the output is called
    (weight_v000002), or one more than the old one.
    """
    from sparsewire.weights.files import diff as make

    with failing(), _progress("compare", new) as move:
        if any(output.resolve().is_relative_to(each.resolve()) for each in (old, new)):
            raise ValueError(f"{output} is one of the versions, or inside of one")
        if form != _OWN:
            _diff_directory(old, new, output, (version, base_version), form, encoding, move)
            return
        names = version or new.resolve().name, base_version or old.resolve().name
        delta = make(_opened(old), _opened(new), *names, output, move)
        _tell(delta, output.stat().st_size)


@weights.command()
@click.argument("base", type=_VERSION)
@click.argument("delta", type=_DELTA)
@click.option("-o", "--output", required=True, type=_NEW_FILE, help="File or directory to write.")
def apply(base: Path, delta: Path, output: Path) -> None:
    """Write the new version that DELTA makes of BASE.

    BASE is checked before, and every changed tensor behind: the output is there as a whole, or not
    at all. Files of a directory that hold no tensors are copied from BASE.

    DELTA may be a directory as slime or ModelExpress store it, or a folder of such: what builds on
    BASE is applied in order. Their format tells little of BASE: checksums of the result decide.
    """
    from sparsewire.weights.files import apply as make
    from sparsewire.weights.versions.message import read
    from sparsewire.weights.versions.names import shown

    with failing(), _progress("apply", base) as move:
        if delta.is_dir():
            _apply_directory(base, delta, output, move)
            return
        found = read(delta)
        make(_opened(base), found, output, move)
        click.echo(f"{shown(output)}: version {found.version}")


@weights.command()
@click.argument("delta", type=_DELTA)
def show(delta: Path) -> None:
    """Show what DELTA changes, tensor by tensor."""
    from sparsewire.weights.versions.message import read

    with failing():
        if delta.is_dir():
            _show_directory(delta)
            return
        _tell(read(delta), delta.stat().st_size, each=True)


def _diff_directory(
    old: Path,
    new: Path,
    output: Path,
    names: tuple[str, str],
    form: str,
    encoding: str,
    move: Move,
) -> None:
    from sparsewire.tools.cli import weight_directories
    from sparsewire.weights.directories.changes import Encoding
    from sparsewire.weights.directories.writing import Dialect

    told = Dialect(form), Encoding(encoding), move
    weight_directories.diff(_opened(old), _opened(new), output, names, *told)


def _apply_directory(base: Path, delta: Path, output: Path, move: Move) -> None:
    from sparsewire.tools.cli import weight_directories

    weight_directories.apply(_opened(base), delta, output, move)


def _show_directory(delta: Path) -> None:
    from sparsewire.tools.cli import weight_directories

    weight_directories.show(delta)


for _command in (serve, pull, status):
    weights.add_command(_command)


def _opened(path: Path) -> Snapshot:
    from sparsewire.weights.versions.snapshot import Snapshot

    return Snapshot(path)


@contextmanager
def _progress(what: str, version: Path) -> Iterator[Move]:
    from sparsewire.tools.experiment.progress import bars

    files = version.glob("*.safetensors") if version.is_dir() else [version]
    total, done = sum(file.stat().st_size for file in files), 0

    def move(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        bar(what, done, total)

    with bars() as bar:
        yield move


def _tell(delta: Delta, size: int, *, each: bool = False) -> None:
    """Print a table of the tensors, if asked for, and a summary."""
    from rich.console import Console

    from sparsewire.tools.experiment.report import Column, table
    from sparsewire.weights.summary import Change, changes, summary
    from sparsewire.weights.versions.names import shown

    if each:
        columns: list[Column[Change]] = [
            Column("tensor", lambda change: shown(change.name), is_text=True),
            Column("dtype", lambda change: change.dtype, is_text=True),
            Column("elements", lambda change: f"{change.elements:,}"),
            Column("changed", lambda change: f"{change.share:.2%}" if not change.is_new else "new"),
            Column("bytes", lambda change: f"{change.nbytes:,}"),
            Column("per change", lambda change: f"{change.nbytes / max(change.changed, 1):.2f}"),
        ]
        Console().print(table(columns, changes(delta)))
    click.echo(summary(delta, size))
