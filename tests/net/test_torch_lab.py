"""Torch's process group between hosts: every group listens where the others can reach it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from sparsewire.tools.lab import Lab, available

WHY_NOT = available()
RANK = str(Path(__file__).with_name("torch_rank.py"))
HOSTS = 2

# As on Debian: the host's own name means loopback, and no other host has a name at all.
BE_DEBIAN = """
hostname debian
umount /etc/hosts
printf '127.0.0.1 localhost\\n::1 localhost\\n127.0.1.1 debian\\n' > "$HOSTS_FILE"
mount --bind "$HOSTS_FILE" /etc/hosts
exec "$@"
"""


def run_ranks(lab: Lab, directory: Path) -> list[tuple[str, str]]:
    """What the ranks print and complain about, by host."""
    argv = ["unshare", "--uts", "--mount", "sh", "-ec", BE_DEBIAN, "sh", sys.executable, RANK]
    ranks: list[subprocess.Popen[str]] = [
        lab.popen(
            host,
            argv,
            {
                **os.environ,
                **lab.environment(host),
                "HOSTS_FILE": str(directory / f"hosts-{host}"),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for host in range(HOSTS)
    ]
    return [rank.communicate(timeout=100) for rank in ranks]


@pytest.mark.lab
@pytest.mark.skipif(WHY_NOT is not None, reason=f"{WHY_NOT}")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_all_groups_use_the_address_of_the_engine(ipv6: bool, tmp_path: Path) -> None:
    with Lab(HOSTS, ipv6=ipv6) as lab:
        ended = run_ranks(lab, tmp_path)
    served = ["ours", "gloo", "both", "neither"]
    assert [printed.split() for printed, _ in ended] == [served] * HOSTS, ended
