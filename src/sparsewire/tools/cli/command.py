"""Additions to click's commands: help in whole sentences and sections, and Ctrl-C."""

from __future__ import annotations

import signal
from typing import Any

import click

_INTERRUPTED = 128 + signal.SIGINT


class Commands(click.Group):
    """A group whose help shows the first sentence of each command as a whole.

    On Ctrl-C it ends with the status that shells give for that, which click's own way does not.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, _summary(self.commands[name])) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class OfSection(click.Option):
    """An option that the help shows under a heading of its own."""

    def __init__(self, *args: Any, section: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.section = section


class InSections(click.Command):
    """A command whose help shows its options in sections, which are in the order of their first."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(option, "section", "Options"), []).append(record)
        for head, rows in sections.items():
            with formatter.section(head):
                formatter.write_dl(rows)


def _summary(command: click.Command) -> str:
    return " ".join((command.help or "").partition("\n\n")[0].split())
