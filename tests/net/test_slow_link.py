"""A slow link at the end of a script: what was sent arrives whole, though its sender is done."""

import sys

import pytest
from click.testing import CliRunner

from sparsewire.tools.cli.lab import lab as lab_command
from sparsewire.tools.lab import available

WHY_NOT = available()

# 14 MB at 10 Mbit/s: some 12 s. The root's call ends when 8 MiB are left to send.
BROADCAST_AND_END = """
import sys
import numpy as np
import sparsewire

comm = sparsewire.init(timeout=120)
length = 3_500_000
if comm.rank == 0:
    indices = np.arange(length, dtype=np.int32)
    comm.broadcast(sparsewire.SparseVector(indices, np.ones(length, np.float32), length))
    sys.exit()
empty = sparsewire.SparseVector(np.empty(0, np.int32), np.empty(0, np.float32), length)
result = comm.broadcast(empty)
print("whole" if result.values.sum() == length else "broken", flush=True)
"""


@pytest.mark.lab
@pytest.mark.skipif(WHY_NOT is not None, reason=f"{WHY_NOT}")
@pytest.mark.timeout(120)
def test_broadcast_before_the_end_of_the_script_arrives_whole() -> None:
    script = [sys.executable, "-c", BROADCAST_AND_END]
    result = CliRunner().invoke(lab_command, ["--hosts", "2", "--link", "10mbit", "--", *script])
    assert result.exit_code == 0, result.output
    assert "whole" in result.output
