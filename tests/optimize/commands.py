"""`sparsewire optimize` as tests call it: in this process, or in one of its own."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner

from sparsewire.tools.cli.main import app

CALL = "from sparsewire.tools.cli.main import app; app()"


def optimize(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["optimize", *map(str, arguments)])
