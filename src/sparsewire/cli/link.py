"""The --link option of the commands that emulate a network."""

from __future__ import annotations

import typer


def check_link(link: str) -> str:
    """Return `link`; where the lab cannot read it, end with a message that names the option."""
    from sparsewire.lab import parse_link

    try:
        parse_link(link)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--link") from None
    return link
