"""Torch's process group between hosts: every group listens where the others can reach it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from sparsewire.lab import Lab, available

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
NAMED = ("SPARSEWIRE_IFNAME", "GLOO_SOCKET_IFNAME")


def environment(lab: Lab, host: int, given: dict[str, str], directory: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in NAMED}
    hosts_file = str(directory / f"hosts-{host}")
    of_lab = {name: value for name, value in lab.environment(host).items() if name not in NAMED}
    return {**inherited, **of_lab, "HOSTS_FILE": hosts_file, "OMP_NUM_THREADS": "1", **given}


def run_ranks(lab: Lab, given: dict[str, str], directory: Path) -> list[tuple[str, str]]:
    """What the ranks print and complain about, by host."""
    argv = ["unshare", "--uts", "--mount", "sh", "-ec", BE_DEBIAN, "sh", sys.executable, RANK]
    ranks: list[subprocess.Popen[str]] = [
        lab.popen(
            host,
            argv,
            environment(lab, host, given, directory),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for host in range(HOSTS)
    ]
    return [rank.communicate(timeout=50) for rank in ranks]


@pytest.mark.matrix
@pytest.mark.lab
@pytest.mark.skipif(WHY_NOT is not None, reason=f"{WHY_NOT}")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize(
    "given",
    [
        {"SPARSEWIRE_IFNAME": Lab.interface},
        {"GLOO_SOCKET_IFNAME": Lab.interface},
        {"SPARSEWIRE_IFNAME": Lab.interface, "GLOO_SOCKET_IFNAME": "lo"},
        {},
    ],
    ids=["ours", "gloo", "both", "neither"],
)
def test_all_groups_use_the_address_of_the_engine(
    given: dict[str, str], ipv6: bool, tmp_path: Path
) -> None:
    with Lab(HOSTS, ipv6=ipv6) as lab:
        ended = run_ranks(lab, given, tmp_path)
    assert [printed for printed, _ in ended] == ["served\n"] * HOSTS, ended
