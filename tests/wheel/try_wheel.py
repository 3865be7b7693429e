"""Tries an installed wheel with nothing but Python beside it: import, doctor, an all_reduce.

python tests/wheel/try_wheel.py [--with-programs]    # with the interpreter it was installed for

With `--with-programs` the wheel must bring the programs for the kernel.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

import sparsewire

COMPILERS = ["cc", "c++", "gcc", "g++", "clang", "clang++"]
RANKS = 2
LENGTH = 1_000_000
DEADLINE_S = 60


def add_up() -> None:
    """What each rank does."""
    with sparsewire.init() as comm:
        x = np.zeros(LENGTH, np.float32)
        x[comm.rank :: 1000] = comm.rank + 1
        expected = x.copy()
        expected[1 - comm.rank :: 1000] = 2 - comm.rank
        comm.all_reduce(x)
    assert np.array_equal(x, expected), "a wrong sum"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def try_all_reduce() -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(RANKS)}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank"], env={**os.environ, **place, "RANK": str(rank)}
        )
        for rank in range(RANKS)
    ]
    try:
        assert not any([rank.wait(DEADLINE_S) for rank in ranks]), "a rank failed"
    finally:
        for rank in ranks:
            rank.kill()


def try_doctor() -> None:
    command = [str(Path(sys.executable).with_name("sparsewire")), "doctor"]
    report = subprocess.run(
        command, check=True, timeout=DEADLINE_S, capture_output=True, text=True
    ).stdout
    assert sparsewire.__version__ in report, report


def check_place(with_programs: bool) -> None:
    folder = Path(sparsewire.__file__).parent
    assert folder.is_relative_to(sys.prefix), f"{folder} is not what was installed"
    has_programs = (folder / "xdp" / "slots.bpf.o").exists()
    assert has_programs or not with_programs, "the programs for the kernel are missing"


def main() -> None:
    if "--rank" in sys.argv:
        add_up()
        return
    check_place("--with-programs" in sys.argv)
    try_doctor()
    try_all_reduce()
    compiler = next(filter(shutil.which, COMPILERS), "no compiler")
    version = sys.version.split()[0]
    print(f"sparsewire {sparsewire.__version__} works on Python {version}, {compiler} on PATH")


if __name__ == "__main__":
    main()
