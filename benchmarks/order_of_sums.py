"""Tells how far the order in which ranks' gradients are added moves the losses of a training.

    python benchmarks/order_of_sums.py --name resnet152 --record

One process takes the steps of all ranks, on one start and the same batches, and adds their
gradients as sparsewire does (in rank order), as a ring does (each part from another rank on), and
in float64. Sums differ by roundings alone; what a network makes of these is its own. Rows of the
record have the loss of each step for each order, and how far sums of the first step are apart.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import records
import torch
from torch import Tensor

from sparsewire.tools.training.workloads.catalogue import WORKLOADS
from sparsewire.tools.training.workloads.workload import Job

Add = Callable[[Sequence[Tensor]], Tensor]


def in_rank_order(gradients: Sequence[Tensor]) -> Tensor:
    total = gradients[0].clone()
    for gradient in gradients[1:]:
        total += gradient
    return total


def around_a_ring(gradients: Sequence[Tensor]) -> Tensor:
    """Part k of each gradient begins at rank k, and ends at the one before it."""
    parts = zip(
        *(gradient.flatten().tensor_split(len(gradients)) for gradient in gradients), strict=True
    )
    turned = (in_rank_order([*each[k:], *each[:k]]) for k, each in enumerate(parts))
    return torch.cat(list(turned)).view_as(gradients[0])


def in_float64(gradients: Sequence[Tensor]) -> Tensor:
    return in_rank_order([gradient.double() for gradient in gradients]).float()


ORDERS: dict[str, Add] = {
    "rank-order": in_rank_order,
    "ring": around_a_ring,
    "float64": in_float64,
}


def gradients_of(job: Job, ranks: int, step: int, seed: int) -> tuple[list[list[Tensor]], float]:
    """Each rank's gradients, by parameter, and the mean of the losses."""
    losses, found = [], []
    for rank in range(ranks):
        job.model.zero_grad()
        loss = job.model(*job.batch_of(seed, rank, step))
        loss.backward()
        losses.append(float(loss))
        found.append([_gradient(parameter) for parameter in job.model.parameters()])
    return found, sum(losses) / ranks


def _gradient(parameter: torch.nn.Parameter) -> Tensor:
    assert parameter.grad is not None, "every parameter takes part"
    return parameter.grad.clone()


def train(name: str, size: str, add: Add, ranks: int, steps: int, seed: int) -> list[float]:
    """The loss of each step."""
    job, losses = made(name, size, seed), []
    optimizer = job.optimizer(job.model.parameters())
    for step in range(steps):
        found, loss = gradients_of(job, ranks, step, seed)
        for parameter, *gradients in zip(job.model.parameters(), *found, strict=True):
            parameter.grad = add(gradients) / ranks
        optimizer.step()
        losses.append(loss)
    return losses


def made(name: str, size: str, seed: int) -> Job:
    torch.manual_seed(seed)
    workload = WORKLOADS[name]
    return workload.make(workload.sizes[size], False)


def apart(name: str, size: str, ranks: int, seed: int) -> float:
    """The norm of the difference of the first step's sums in rank order and around a ring, as a
    share of their norm."""
    found, _ = gradients_of(made(name, size, seed), ranks, 0, seed)
    sums = [
        [add(each) for each in zip(*found, strict=True)] for add in (in_rank_order, around_a_ring)
    ]
    ours, rings = (torch.cat([each.flatten() for each in one]) for one in sums)
    return float((ours - rings).norm() / ours.norm())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--name", choices=WORKLOADS, default="resnet152")
    parser.add_argument("--size", default="here")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="keep it in record order-of-sums")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = {}
    for order, add in ORDERS.items():
        losses = train(given.name, given.size, add, given.ranks, given.steps, given.seed)
        rows[order] = {f"loss_{step}": loss for step, loss in enumerate(losses, 1)}
        print(order, *(f"{loss:.7f}" for loss in losses), flush=True)
    share = apart(given.name, given.size, given.ranks, given.seed)
    print(f"sums of the first step are {share:.2g} apart, as a share of their norm")
    if given.record:
        for order, row in rows.items():
            records.keep("order-of-sums", f"{given.name}/{order}", row)
        records.keep("order-of-sums", f"{given.name}/first-sums", {"apart_share": share})


if __name__ == "__main__":
    main()
