"""`import torch` alone makes the backend known; that costs little, and never breaks the import."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from sparsewire import autoload
from sparsewire.instead_of import served
from sparsewire.torch.backend import TAKES_BACKENDS

pytestmark = pytest.mark.timeout(180)

before_2_14 = pytest.mark.skipif(TAKES_BACKENDS, reason="torch finds backends by itself")


def alone(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new interpreter, which knows nothing that this one has imported."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=150,
    )


def test_the_entry_point_loads() -> None:
    (found,) = entry_points(group="torch.backends", name="sparsewire")
    assert found.load() is autoload.load


LOADED = """
import sys, sparsewire.autoload
sparsewire.autoload.load()
sparsewire.autoload.load()
print(*sorted(name for name in sys.modules if name.startswith("sparsewire")))
"""


def test_nothing_else_is_imported() -> None:
    # Less than that, an import of torch cannot cost.
    done = alone(LOADED)
    assert done.stdout.split() == ["sparsewire", "sparsewire.autoload"], done.stderr


COMPOSITE = """
import sparsewire.autoload, torch, torch.distributed as dist
sparsewire.autoload.load()
dist.init_process_group("cpu:gloo,cuda:gloo", store=dist.HashStore(), rank=0, world_size=1)
print(dist.group.WORLD.name())
"""


@before_2_14
def test_groups_of_others_are_as_they_were() -> None:
    done = alone(COMPOSITE)
    assert done.stdout.split() == ["gloo"], done.stderr


BROKEN = """
import sparsewire.autoload, torch, torch.distributed as dist
dist.Backend.backend_list.remove("sparsewire") if "sparsewire" in dist.Backend.backend_list else 0
dist.Backend.backend_type_map = None
sparsewire.autoload.load()
print("alive")
"""


@before_2_14
def test_a_failure_is_logged() -> None:
    done = alone(BROKEN)
    assert done.stdout.split() == ["alive"], done.stderr
    assert "could not attach" in done.stderr


SWITCHED_OFF = """
import torch.distributed as dist
dist.init_process_group("sparsewire", store=dist.HashStore(), rank=0, world_size=1)
"""


@before_2_14
def test_it_can_be_switched_off() -> None:
    done = alone(SWITCHED_OFF, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "Unknown backend type sparsewire" in done.stderr


REPLACED = """
import sparsewire.autoload, torch, torch.distributed as dist
sparsewire.autoload.load()
dist.init_process_group({backend}, store=dist.HashStore(), rank=0, world_size=1)
print(dist.get_backend(), dist.get_backend(dist.new_group([0], backend="gloo")))
"""


@pytest.mark.parametrize("backend", ['"gloo"', "backend=None"])
def test_programs_get_it_instead(backend: str) -> None:
    done = alone(REPLACED.format(backend=backend), SPARSEWIRE_INSTEAD_OF="gloo,nccl")
    assert done.stdout.split() == ["sparsewire", "gloo"], done.stderr


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        ("gloo", "sparsewire"),
        ("GLOO", "sparsewire"),
        (None, "sparsewire"),
        ("cpu:gloo,cuda:nccl", "sparsewire"),
        ("nccl", "nccl"),
        ("sparsewire", "sparsewire"),
        ("cpu:mpi,cuda:nccl", "cpu:mpi,cuda:nccl"),
    ],
)
def test_which_backends_are_replaced(asked: str | None, made: str) -> None:
    assert served(frozenset({"gloo"}), asked) == made
