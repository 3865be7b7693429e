"""The `sparsewire` command: one application; the modules of this package add its commands."""

from importlib.metadata import version

import typer

from sparsewire.cli import (
    advise,
    aggregator,
    bench,
    doctor,
    lab,
    optimize,
    profile,
    top,
    training,
    workload,
)

app = typer.Typer(
    help="Sparse collective communication for distributed training: send only what is not zero.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sparsewire {version('sparsewire')}")
        raise typer.Exit


@app.callback()
def main(
    show_version: bool = typer.Option(
        False,
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Show the version and exit.",
    ),
) -> None:
    pass


app.command()(training.demo)
# Options after the command's name belong to the command that is run.
app.command(context_settings={"allow_interspersed_args": False})(lab.lab)
app.command(context_settings={"allow_interspersed_args": False})(profile.profile)
bench.app.command()(training.training)
bench.app.command()(workload.workload)
app.add_typer(bench.app, name="bench")
app.command()(optimize.optimize)
app.command()(advise.advise)
app.command()(doctor.doctor)
app.command()(top.top)
app.add_typer(aggregator.app, name="aggregator")
