"""The command by its module's name, for who has no scripts on PATH."""

from __future__ import annotations

import subprocess
import sys


def test_python_runs_the_package_as_the_command() -> None:
    command = [sys.executable, "-m", "sparsewire"]
    version = subprocess.run(
        [*command, "--version"], check=True, capture_output=True, text=True, timeout=50
    )
    assert version.stdout.startswith("sparsewire ")
    wrong = subprocess.run([*command, "lab"], capture_output=True, text=True, timeout=50)
    assert wrong.returncode == 2
    assert "Usage: python -m sparsewire lab" in wrong.stderr
