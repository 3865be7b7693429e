"""`sparsewire meeting`: the place where replicas of outer optimizers meet, which outlives them."""

import signal

import click

from sparsewire.tools.cli.failure import exit_on_error
from sparsewire.tools.experiment.extras import require


@click.command()
@click.option(
    "--bind", default="127.0.0.1:29600", help="Address to listen on, HOST:PORT or [IPv6]:PORT."
)
def meeting(bind: str) -> None:
    """Serve the place where replicas meet that train across slow links, until interrupted.

    Replicas pass `membership=outer.meeting_at("HOST:PORT", name, expect)` to their OuterOptimizer;
    see docs/outer.md. No tensor goes through here, only names and addresses. It asks nobody for a
    secret, so keep it inside your VPN. Set SPARSEWIRE_SECRET on the replicas: it authenticates
    their connections.
    """
    with exit_on_error():
        from sparsewire.options import parse_address

        address = parse_address(bind)
        require("torch", extra="torch")
        from sparsewire.torch.outer import serve_meeting

        server = serve_meeting(*address)
    # A service manager stops it with SIGTERM: end as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        click.echo(f"replicas meet at {address._replace(port=server.port)}; Ctrl-C ends this")
        signal.pause()
    except KeyboardInterrupt:
        pass
