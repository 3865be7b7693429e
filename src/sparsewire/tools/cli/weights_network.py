"""`sparsewire weights serve`, `pull` and `status`: versions in directories, over a network."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparsewire.tools.cli import options
from sparsewire.tools.cli.secret import read_secret
from sparsewire.tools.cli.weights_failure import failing

if TYPE_CHECKING:
    from sparsewire.tools.experiment.report import ResultFiles
    from sparsewire.tools.weights.pulling import Pulled
    from sparsewire.weights.publisher import Published
    from sparsewire.weights.receiver import Receiver

_PATH = click.Path(exists=True, path_type=Path)
_secret = options.secret_file(
    "File with the secret that readers must know, instead of SPARSEWIRE_SECRET."
)


@click.command()
@click.argument("path", metavar="DIR", type=_PATH)
@click.option(
    "--bind", default="127.0.0.1:0", help="Address to listen on, HOST:PORT; port 0 picks one."
)
@click.option(
    "--keep",
    type=options.COUNT,
    default=64,
    help="Versions that readers may lag and still get deltas.",
)
@click.option(
    "--store",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for messages: the next start goes on from there. Default: memory.",
)
@click.option(
    "--interval", type=click.FloatRange(0.05), default=1.0, help="Seconds between two looks at DIR."
)
@click.option("--once", is_flag=True, help="Publish what is there, and do not look again.")
@_secret
def serve(
    path: Path,
    bind: str,
    keep: int,
    store: Path | None,
    interval: float,
    once: bool,
    secret_file: Path | None,
) -> None:
    """Publish the versions in DIR to readers, and each new one as it comes.

    DIR is a version that changes: a safetensors file, or a directory of them. Or it has a folder
    for each version: the last number in its name, such as step-100, is the version's number. A
    version is read when it was left alone for one look. Serves until Ctrl-C.
    """
    from sparsewire.tools.weights import serving
    from sparsewire.weights.publisher import Publisher

    with failing():
        secret = read_secret(secret_file)
        with (
            Publisher(bind, secret=secret, keep=keep, directory=store) as publisher,
            _until_told() as ended,
        ):
            click.echo(f"listening on {publisher.address}")
            for source, published in serving.serve(publisher, path, interval, ended, once=once):
                click.echo(_published_line(source, published))
            ended.wait()


def _published_line(source: Path, published: Published) -> str:
    share = published.changed / max(published.elements, 1)
    return (
        f"version {published.version} from {source}: {share:.2%} changed, {published.nbytes:,} of "
        f"{published.whole_nbytes:,} bytes, {published.seconds:.2f} s"
    )


@contextmanager
def _until_told() -> Iterator[threading.Event]:
    """An event that nobody sets: Ctrl-C ends its wait."""
    try:
        yield threading.Event()
    except KeyboardInterrupt:
        click.echo("ended")


@click.command()
@click.argument("address", metavar="HOST:PORT")
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--version", type=click.IntRange(0), help="Get this version.  [default: the newest]")
@click.option("--watch", is_flag=True, help="Stay, and apply each new version as it comes.")
@click.option(
    "--timeout", type=click.FloatRange(0), default=300.0, help="Seconds to wait for a version."
)
@click.option("--name", help="Name of this reader for `status`.  [default: the host's]")
@click.option(
    "--relay", metavar="HOST:PORT", help="Listen here, and pass versions on to other readers."
)
@click.option(
    "--site",
    default="",
    show_default=False,
    help="Where this reader stands: between sites bytes go once.",
)
@options.plot_file("Draw bytes and seconds of each version into this file (matplotlib).")
@_secret
def pull(
    address: str,
    directory: Path,
    version: int | None,
    watch: bool,
    timeout: float,
    name: str | None,
    relay: str | None,
    site: str,
    plot: Path | None,
    secret_file: Path | None,
) -> None:
    """Make DIR the newest version of the publisher at HOST:PORT, in the bytes of what changed.

    What is in DIR already is the base: files of safetensors, changed in place. sparsewire.json in
    it tells the version, and whether its files are whole: they are not while one is applied. A
    pull that was killed meanwhile is mended by the next one. DIR may be empty, or not there.
    """
    from sparsewire.tools.experiment.report import ResultFiles
    from sparsewire.weights.readers.checkout import Checkout
    from sparsewire.weights.receiver import Receiver

    with failing(), _until_told():
        files = ResultFiles(plot=plot).checked()
        home = Checkout(directory)
        secret = read_secret(secret_file)
        with Receiver(address, home, secret=secret, name=name, relay=relay, site=site) as receiver:
            if watch and version is not None:
                raise ValueError("--watch follows the newest version: leave --version away")
            _pull(receiver, version, watch, timeout, files)


def _pull(
    receiver: Receiver, version: int | None, watch: bool, timeout: float, files: ResultFiles
) -> None:
    from sparsewire.errors import Timeout
    from sparsewire.tools.weights.pictures import picture
    from sparsewire.tools.weights.pulling import pull

    done: list[Pulled] = []
    while not done or watch:
        try:
            with _progress(receiver):
                done.append(pull(receiver, version, timeout))
        except Timeout:
            if not watch:
                raise
            continue
        click.echo(_pulled_line(done[-1]))
        files.write({}, lambda: picture(done))


def _pulled_line(pulled: Pulled) -> str:
    came, seconds = pulled.way, pulled.seconds
    if not came.messages:
        return f"version {pulled.version}: the directory has it"
    deltas = "a delta" if came.messages == 1 else f"{came.messages} deltas"
    way = "the whole version" if came.is_whole else deltas
    return (
        f"version {pulled.version}: {came.nbytes:,} of {pulled.nbytes:,} bytes, {way}; "
        f"staged in {seconds.staging:.2f} s, verified in {seconds.verifying:.2f} s, applied in "
        f"{seconds.applying:.3f} s"
    )


@contextmanager
def _progress(receiver: Receiver) -> Iterator[None]:
    """A bar of the bytes that came, on a terminal."""
    from sparsewire.tools.experiment.progress import bars

    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            done, total = receiver.progress
            if total:
                move("get", done, total, f"{done:,} of {total:,} bytes")

    with bars() as move:
        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@click.command()
@click.argument("address", metavar="HOST:PORT")
@click.option("--json", "as_json", is_flag=True, help="Print everything as a line of JSON.")
@click.option(
    "--timeout", type=click.FloatRange(0.1), default=5.0, help="Seconds to wait for an answer."
)
@_secret
def status(address: str, as_json: bool, timeout: float, secret_file: Path | None) -> None:
    """Show the versions of the publisher at HOST:PORT, and which one each of its readers has.

    Exit status: 1 where no publisher answers.
    """
    from sparsewire.options import parse_address
    from sparsewire.weights.sync.inquiry import status_of

    with failing():
        told = status_of(parse_address(address), read_secret(secret_file), timeout)
        if as_json:
            click.echo(json.dumps(told))
        else:
            _show(told)


def _show(told: dict[str, Any]) -> None:
    from sparsewire.tools.experiment.report import Column, report_console, table

    messages = told["messages"]
    nbytes = sum(each["bytes"] for each in messages)
    click.echo(
        f"version {told['version']}; {len(messages)} messages of versions "
        f"{min((each['version'] for each in messages), default='-')} to {told['version']}, "
        f"{nbytes:,} bytes"
    )
    columns: list[Column[dict[str, Any]]] = [
        Column("reader", lambda each: str(each["name"]), is_text=True),
        Column("address", lambda each: str(each["address"]), is_text=True),
        Column("version", lambda each: "-" if each["version"] is None else str(each["version"])),
        Column("does", lambda each: str(each["doing"]), is_text=True),
        Column("seen", lambda each: f"{each['seen_s']:.1f} s ago"),
        Column("relay", lambda each: str(each["relay"] or ""), is_text=True),
        Column("site", lambda each: str(each["site"]), is_text=True),
    ]
    rows = sorted(told["readers"], key=lambda each: (each["is_newest"], str(each["name"])))
    report_console().print(table(columns, rows, stands_out=lambda each: not each["is_newest"]))
