"""`sparsewire aggregator`: a process that adds up for the workers of other hosts."""

import logging
import os
import signal
from pathlib import Path

import click

from sparsewire.options import AUTO, TRANSPORTS
from sparsewire.tools.cli import options
from sparsewire.tools.cli.aggregator_status import status
from sparsewire.tools.cli.failure import exit_on_error
from sparsewire.tools.cli.secret import read_secret


@click.group(invoke_without_command=True)
@click.option(
    "--bind",
    default="127.0.0.1:0",
    help="Address to listen on, HOST:PORT or [IPv6]:PORT; port 0 picks one.",
)
@click.option("--max-jobs", type=options.COUNT, default=64, help="Jobs to serve at a time.")
@click.option("--max-ranks", type=options.COUNT, default=1024, help="Ranks that one job may have.")
@click.option(
    "--memory",
    type=options.COUNT,
    default=2048,
    help="MiB that all jobs together may come to need; one more is refused.",
)
@click.option(
    "--job-memory", type=options.COUNT, default=1024, help="MiB that one job may come to need."
)
@click.option(
    "--max-window",
    type=click.IntRange(1 << 14),
    default=1 << 20,
    help="Bytes of the largest SPARSEWIRE_WINDOW that a job may have.",
)
@click.option(
    "--grace",
    type=click.FloatRange(1),
    default=330.0,
    help="Seconds after which a worker that has said nothing is let go.",
)
@options.secret_file("File with the secret that workers must know, instead of SPARSEWIRE_SECRET.")
@click.option(
    "--transport",
    default="tcp",
    help="What dense sums come by, beside connections: `udp` for datagrams, in fixed point or "
    "exactly; `xdp` for datagrams that the kernel adds up, in fixed point; `auto` for `xdp` "
    "where that works and `udp` where it does not, which the log says. Workers set "
    "SPARSEWIRE_TRANSPORT=xdp for `auto`, too.",
)
@click.option(
    "--interface",
    default="",
    help="Network interface at which the kernel adds up, with `--transport xdp` or `auto`.",
)
@click.option(
    "--parent",
    help="With `--transport udp`, `xdp` or `auto`: the aggregator above, HOST:PORT or "
    "[IPv6]:PORT, where this one takes part as one worker, with the sums of its own, which are "
    "a rack's.",
)
@click.option("--verbose", "-v", is_flag=True, help="Log workers that come and jobs that end.")
@click.pass_context
def aggregator(
    context: click.Context,
    bind: str,
    max_jobs: int,
    max_ranks: int,
    memory: int,
    job_memory: int,
    max_window: int,
    grace: float,
    secret_file: Path | None,
    transport: str,
    interface: str,
    parent: str | None,
    verbose: bool,
) -> None:
    """Serve as a dedicated aggregator for any number of jobs, until interrupted.

    Workers find it with `SPARSEWIRE_AGGREGATORS=host:port`, or several of them, with commas.
    `sparsewire aggregator status` shows what it does.

    Two levels: one aggregator is the root, and each rack has one with `--parent ROOT:PORT`. Ranks
    name that of their own rack, and set SPARSEWIRE_RACK to a name for it.
    """
    if context.invoked_subcommand:
        _refuse_options(context)
        return
    from sparsewire.meeting.aggregators.aggregator import AggregatorServer
    from sparsewire.options import parse_address

    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    # A service manager stops it with SIGTERM: end as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with exit_on_error():
        _check_transport(transport, interface, parent)
        server = AggregatorServer(
            parse_address(bind),
            secret=read_secret(secret_file),
            jobs_max=max_jobs,
            ranks_max=max_ranks,
            memory=memory << 20,
            job_memory=job_memory << 20,
            window_max=max_window,
            grace=grace,
            transport=transport,
            interface=interface,
            parent=parse_address(parent) if parent else None,
            disturb=os.environ.get("SPARSEWIRE_DISTURB", ""),
        )
    try:
        print(f"listening on {server.address}", flush=True)
        server.serve()
    except KeyboardInterrupt:
        pass
    finally:
        server.close()


aggregator.add_command(status)


def _refuse_options(context: click.Context) -> None:
    """Options that stand before a subcommand would be of no use to it."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise click.BadParameter(
                f"{parameter.opts[0]} is of serving: put options of {context.invoked_subcommand} "
                "behind it"
            )


def _check_transport(transport: str, interface: str, parent: str | None) -> None:
    transports = *TRANSPORTS, AUTO
    if transport not in transports:
        raise ValueError(f"--transport must be {', '.join(transports)}, not {transport!r}")
    if (transport in ("xdp", AUTO)) != bool(interface):
        raise ValueError(
            "--transport xdp or auto and --interface go together: name the network interface to "
            "which the workers' datagrams come, such as --interface eth0"
        )
    if parent and transport == "tcp":
        raise ValueError("--parent goes with --transport udp, xdp or auto, not with tcp")
