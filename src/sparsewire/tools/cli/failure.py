"""How a command ends before its time: told to by a signal, or by an error that says what to do.

Either way in good order, so that what it has started ends with it.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import click

from sparsewire.errors import Error
from sparsewire.tools.experiment.signals import ending_on


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn an error whose message says what to do into that message and exit status 1.

    Asked to end, the command first ends what it has started, as it does on Ctrl-C.
    """
    try:
        with ending_on(signal.SIGTERM):
            yield
    except (Error, ValueError) as error:
        click.echo(f"error: {error}", err=True)
        raise click.exceptions.Exit(1) from None


def check_link(link: str, option: str = "--link") -> str:
    """Return `link`; where the lab cannot read it, end with a message that names the option."""
    from sparsewire.tools.lab import parse_link

    try:
        parse_link(link)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None
    return link
