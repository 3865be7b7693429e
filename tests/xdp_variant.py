"""The programs with one change in their source, compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BPF = Path(__file__).parents[1] / "bpf"
CLANG = next(filter(None, map(shutil.which, ["clang", "clang-14"])), None)

needs_clang = pytest.mark.skipif(
    CLANG is None and "CI" not in os.environ, reason="clang is not installed"
)
# As in a driver that takes frames of one page only.
WITHOUT_FRAGMENTS = "slots.bpf.c", 'SEC("xdp.frags', 'SEC("xdp'


def variant(folder: Path, name: str, right: str, wrong: str) -> Path:
    """The object made in `folder` with `wrong` in place of `right` in the file of that name."""
    sources = shutil.copytree(BPF, folder / "bpf")
    text = (sources / name).read_text()
    assert right in text
    (sources / name).write_text(text.replace(right, wrong))
    return compiled(sources)


def compiled(sources: Path) -> Path:
    out = sources / "slots.bpf.o"
    headers = f"/usr/include/{os.uname().machine}-linux-gnu"
    flags = ["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-isystem", headers]
    subprocess.run([f"{CLANG}", *flags, "-c", sources / "slots.bpf.c", "-o", out], check=True)
    return out
