"""Times sums of ranks that share one device: all elements, and 1% of the blocks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from job import end, parser_of, report, start, timed

BLOCK = 256
TURNS = 5


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--backend", default="sparsewire")
    parser.add_argument("--elements", type=int, default=25_000_000)
    given = parser.parse_args()
    device = start(given.device, given.backend)
    torch.manual_seed(dist.get_rank())
    for density in (0.01, 1.0):
        rows = torch.zeros(given.elements // BLOCK, BLOCK, device=device)
        named = torch.randperm(len(rows))[: max(1, round(len(rows) * density))].to(device)
        rows[named] = torch.randn(len(named), BLOCK, device=device)
        kept = rows.clone()

        def reduce(rows: torch.Tensor = rows, kept: torch.Tensor = kept) -> None:
            rows.copy_(kept)
            dist.all_reduce(rows)

        seconds = timed(device, TURNS, reduce)
        report(backend=given.backend, density=density, elements=rows.numel(), seconds=seconds)
    end()


if __name__ == "__main__":
    main()
