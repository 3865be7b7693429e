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
    see docs/outer.md. No tensor goes through here, only who takes part and at which addresses. It
    needs no secret to be read: keep it inside your VPN, and set SPARSEWIRE_SECRET on the replicas,
    whose connections it authenticates.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with exit_on_error():
        require("torch", extra="torch")
        from sparsewire.options import parse_address
        from sparsewire.torch.outer import serve_meeting

        address = parse_address(bind)
        server = serve_meeting(*address)
        click.echo(f"replicas meet at {address[0]}:{server.port}")
        try:
            signal.pause()
        except KeyboardInterrupt:
            return
