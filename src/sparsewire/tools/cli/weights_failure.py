"""How commands of `sparsewire weights` end early: with a message that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from sparsewire.tools.cli.failure import exit_on_error


@contextmanager
def failing() -> Iterator[None]:
    """Turn errors, those of files too, into a message and exit status 1."""
    from sparsewire.tools.experiment.extras import require

    try:
        with exit_on_error():
            for package in ("xxhash", "zstandard"):
                require(package, extra="weights")
            yield
    except OSError as error:
        click.echo(f"error: {error}", err=True)
        raise click.exceptions.Exit(1) from None
