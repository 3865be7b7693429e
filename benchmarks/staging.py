"""Times what a tensor on a device takes to the host and back: packed, and whole.

python benchmarks/staging.py [--device cuda] [--elements 25000000] [--densities 0.01,0.1,1]

Without a GPU it runs on the CPU, where "the device" is host memory and copies are plain ones: then
the figures say what the steps cost a processor, and nothing of a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path as FilePath

import torch

from sparsewire.device.accelerator import ACCELERATORS
from sparsewire.device.block_operations import operations_for
from sparsewire.device.packing import BLOCK
from sparsewire.device.staging import staging_of
from sparsewire.device.transfer import PackedTransfer, Transfer, WholeTransfer, called

TURNS = 10
Kind = Callable[..., Transfer]


def tensor_of(elements: int, density: float, device: torch.device) -> torch.Tensor:
    """Blocks of normal numbers in random places, float32."""
    torch.manual_seed(0)
    tensor = torch.zeros(elements, device=device)
    rows = tensor[: elements // BLOCK * BLOCK].view(-1, BLOCK)
    named = torch.randperm(len(rows))[: round(len(rows) * density)].to(device)
    rows[named] = torch.randn(len(named), BLOCK, device=device)
    return tensor


def measure(kind: Kind, tensor: torch.Tensor) -> dict[str, float]:
    """The best of so many turns, in milliseconds; the tensor comes back as it was."""
    staging = staging_of(tensor.device)
    turns = []
    for _ in range(TURNS + 1):  # The first one makes the pinned memory.
        called(staging, tensor).synchronize()
        transfer = kind(staging, tensor)
        begin = time.perf_counter()
        on_host = transfer.send()
        sent = time.perf_counter()
        # What an engine would give back is in memory of its own.
        result = on_host.clone() if kind is PackedTransfer else on_host
        received = time.perf_counter()
        transfer.receive(result).synchronize()
        turns.append((sent - begin, time.perf_counter() - received))
    to_host, back = (min(each) * 1e3 for each in zip(*turns[1:], strict=True))
    return {"to_host_ms": to_host, "back_ms": back}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--elements", type=int, default=25_000_000)
    parser.add_argument("--densities", default="0,0.01,0.1,0.5,1")
    given = parser.parse_args()
    device = torch.empty(0, device=given.device).device
    if device.type == "cpu":
        sys.path.insert(0, str(FilePath(__file__).parents[1] / "tests" / "torch"))
        from device_double import Double

        ACCELERATORS["cpu"] = Double()
    for density in map(float, given.densities.split(",")):
        tensor = tensor_of(given.elements, density, device)
        before = tensor.clone()
        for kind in (PackedTransfer, WholeTransfer):
            figures = measure(kind, tensor)
            assert torch.equal(tensor, before)
            case = {"device": str(device), "elements": given.elements, "density": density}
            case["operations"] = type(operations_for(device)).__name__
            print(json.dumps({**case, "path": kind.__name__, **figures}), flush=True)


if __name__ == "__main__":
    main()
