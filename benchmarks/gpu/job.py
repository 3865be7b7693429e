"""What the programs beside this file have in common: a job whose ranks share one device.

With `--device cpu` tensors on the CPU stand for those on a device, over the double of the tests:
a dry run, which says nothing of a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

TIMEOUT = timedelta(seconds=60)


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser that knows the device."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    return parser


def start(device: str, backend: str = "sparsewire") -> torch.device:
    """Meet the other ranks; the device that all share."""
    os.environ.setdefault("SPARSEWIRE_CUDA", "engine")
    import sparsewire.torch  # noqa: F401

    if device == "cpu" and backend == "sparsewire":
        _put_double()
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group(backend, timeout=TIMEOUT)
    return torch.device(device, 0) if device == "cuda" else torch.device(device)


def _put_double() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "torch"))
    from device_double import Double

    from sparsewire.device.accelerator import ACCELERATORS

    double: Any = Double("shared")
    ACCELERATORS["cpu"] = double


def synchronize(device: torch.device) -> None:
    """Block until the caller's stream on the device has done all."""
    from sparsewire.device.accelerator import ACCELERATORS

    if (accelerator := ACCELERATORS.get(device.type)) is not None:
        accelerator.record(accelerator.current(device)).synchronize()


def sleep(device: torch.device, cycles: float) -> None:
    """Keep the caller's stream busy; a CPU has none."""
    if device.type == "cuda":
        torch.cuda._sleep(int(cycles))


def courier_seconds() -> float:
    """Processor time of the threads that take tensors to the engine and back."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for thread in threading.enumerate():
        if thread.name.startswith("sparsewire-device"):
            fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2]
            user, system = fields.split()[11:13]
            total += (int(user) + int(system)) / ticks
    return total


def report(**figures: Any) -> None:
    """Print figures as one line of JSON, on rank 0."""
    if dist.get_rank() == 0:
        print(json.dumps(figures), flush=True)


def end() -> None:
    """Leave together."""
    dist.barrier()
    dist.destroy_process_group()


def timed(device: torch.device, repeat: int, call: Any) -> float:
    """The median of the seconds that a call takes, the device's work with it."""
    taken = []
    for _ in range(repeat + 1):
        dist.barrier()
        synchronize(device)
        begin = time.perf_counter()
        call()
        synchronize(device)
        taken.append(time.perf_counter() - begin)
    return sorted(taken[1:])[repeat // 2]
