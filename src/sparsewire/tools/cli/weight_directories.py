"""What `sparsewire weights` does with directories in which others store a version's changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from sparsewire.tools.experiment.extras import require
from sparsewire.tools.experiment.report import Column, table
from sparsewire.weights.directories import applying
from sparsewire.weights.directories.chain import chain, versions_in
from sparsewire.weights.directories.changes import Encoding
from sparsewire.weights.directories.index import tells_of_changes
from sparsewire.weights.directories.mark import version_of
from sparsewire.weights.directories.stored import StoredVersion
from sparsewire.weights.directories.writing import Dialect, write
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.snapshot import Snapshot

Move = Callable[[int], None]


def diff(
    old: Snapshot,
    new: Snapshot,
    output: Path,
    names: tuple[str, str],
    dialect: Dialect,
    encoding: Encoding,
    move: Move,
) -> None:
    """Write the directory `output`; `names` are those of both versions, where they were given."""
    require("zstandard", extra="weights")
    version, base = _named(dialect, names, old.path, new.path, output)
    written = write(
        old, new, output, (version, base), dialect=dialect, encoding=encoding, move=move
    )
    click.echo(
        f"{base} -> {version}: {written.tensors} tensors changed. {written.changed:,} bytes "
        f"in {written.nbytes:,}"
    )
    if others := sorted(new.texts_beside(old)):
        told = ", ".join(map(shown, others))
        click.echo(f"note: the format stores tensors only, and these differ: {told}", err=True)


def _named(
    dialect: Dialect, names: tuple[str, str], old: Path, new: Path, output: Path
) -> tuple[str, str]:
    """The names of the new version and of the old one, in the dialect's words."""
    version, base = names[0], names[1] or version_of(old) or ""
    if dialect is Dialect.MODELEXPRESS:
        return version or new.resolve().name, base or old.resolve().name
    if not version:
        counted = re.fullmatch(r"(?:weight_v)?([0-9]+)", output.name)
        version = counted[1] if counted else str(int(dialect.named(base or "0")) + 1)
    version = dialect.named(version)
    return version, dialect.named(base or str(int(version) - 1))


def apply(base: Snapshot, delta: Path, output: Path, move: Move) -> None:
    """Apply one version's changes, or all those in a folder that build on the base."""
    require("zstandard", extra="weights")
    paths = [delta] if tells_of_changes(delta) else chain(delta, version_of(base.path))
    version = applying.apply(base, paths, output, move)
    through = f", through {len(paths)} versions" if len(paths) > 1 else ""
    click.echo(f"{shown(output)}: version {version}{through}")


def show(delta: Path) -> None:
    """Show one version's changes by tensor, or the versions in a folder."""
    if tells_of_changes(delta):
        _show_version(StoredVersion(delta))
        return
    paths = versions_in(delta)
    if not paths:
        raise ValueError(f"{shown(delta)} stores no version's changes")
    columns: list[Column[StoredVersion]] = [
        Column("directory", lambda each: shown(each.path.name), is_text=True),
        Column("builds on", lambda each: each.index.base_version, is_text=True),
        Column("version", lambda each: each.index.version, is_text=True),
        Column("tensors", lambda each: f"{len(each.changes):,}"),
        Column("bytes", lambda each: f"{each.nbytes:,}"),
    ]
    Console().print(table(columns, map(StoredVersion, paths)))


def _show_version(version: StoredVersion) -> None:
    columns: list[Column[str]] = [
        Column("tensor", shown, is_text=True),
        Column("bytes", lambda name: f"{len(version.changes[name].code):,}"),
        Column("checksum", lambda name: version.changes[name].fresh, is_text=True),
    ]
    Console().print(table(columns, version.changes))
    index = version.index
    click.echo(
        f"{index.base_version} -> {index.version}: {len(version.changes)} tensors changed, in "
        f"{version.nbytes:,} bytes of {index.encoding.value} and zstd; checksums are "
        f"{index.checksum_format}"
    )
