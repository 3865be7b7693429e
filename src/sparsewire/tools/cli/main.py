"""The `sparsewire` command: one application; the modules of this package are its commands."""

import click

from sparsewire.tools.cli import (
    advise,
    aggregator,
    bench,
    doctor,
    lab,
    meeting,
    optimize,
    profile,
    top,
    training,
    weights,
)
from sparsewire.tools.cli.command import Commands

_SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100}


@click.group(cls=Commands, context_settings=_SETTINGS)
@click.version_option(package_name="sparsewire", message="sparsewire %(version)s")
def app() -> None:
    """Sparse collective communication for distributed training: send only what is not zero."""


for command in (
    training.demo,
    lab.lab,
    profile.profile,
    bench.bench,
    optimize.optimize,
    advise.advise,
    doctor.doctor,
    top.top,
    aggregator.aggregator,
    meeting.meeting,
    weights.weights,
):
    app.add_command(command)
