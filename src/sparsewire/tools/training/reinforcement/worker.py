"""One process of the loop: ranks 0 and 1 train, ranks 2 and 3 are readers, which sample.

Readers are no part of the trainers' process group: what they sample goes to trainers through a
store of torch's, and what trainers make of the weights comes back as the order says. Rank 0 tells
everything, one line of JSON for each event.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.nn.parallel import DistributedDataParallel

import sparsewire.torch  # noqa: F401  (makes the backend)
from sparsewire.tools.experiment.crew import Tell, claim_stdout
from sparsewire.tools.training.reinforcement import samples
from sparsewire.tools.training.reinforcement.learner import Masters, learn
from sparsewire.tools.training.reinforcement.order import DELTAS, READERS, TRAINERS, Order
from sparsewire.tools.training.reinforcement.policy import Policy
from sparsewire.tools.training.reinforcement.pretraining import load
from sparsewire.tools.training.reinforcement.reversal import LENGTH, VOCABULARY
from sparsewire.tools.training.reinforcement.sampling import SamplingLoop
from sparsewire.tools.training.reinforcement.transfer import (
    DeltaReader,
    DeltaSender,
    Reader,
    Sender,
    WholeReader,
    WholeSender,
    flat,
    gloo,
)

_WARMUP = 5


def train(order: Order, rank: int, store: Store, tell: Tell) -> None:
    """Be a trainer; rank 0 sends the weights."""
    policy = policy_of(order)
    with trainers(order, rank):
        ddp = DistributedDataParallel(policy)
        masters = Masters(policy.parameters(), order.rate, _WARMUP)
        sender = sender_of(order, policy, store) if rank == 0 else None
        tell("began", at=time.time(), parameters=flat(policy).numel())
        for number in range(order.versions):
            batch = samples.receive(store, TRAINERS + rank, number, order.batch)
            reward = learn(ddp, masters, batch, order.answers)
            told = sender.send() if sender else {}
            tell("version", number=number + 1, at=time.time(), reward=reward, **told)
        if sender:
            tell_of_readers(store, tell)
            tell("ended", bits=bits(policy))
            sender.close()


@contextmanager
def trainers(order: Order, rank: int) -> Iterator[None]:
    """The trainers' process group."""
    dist.init_process_group(
        "sparsewire",
        store=PrefixStore("trainers", connected(order)),
        rank=rank,
        world_size=TRAINERS,
        timeout=timedelta(seconds=order.timeout_s),
    )
    yield
    dist.destroy_process_group()


def tell_of_readers(store: Store, tell: Tell) -> None:
    """Wait for what readers have to tell, and tell it."""
    for rank in range(TRAINERS, TRAINERS + READERS):
        tell("reader", **json.loads(store.get(_told_by(rank))))


def read(order: Order, rank: int, store: Store) -> None:
    """Be a reader."""
    policy = policy_of(order)
    with closing(reader_of(order, policy, store, rank)) as reader, ThreadPoolExecutor(1) as pool:
        loop = SamplingLoop(order, policy, reader, order.seed * READERS + rank)
        loop.run(pool, lambda number, batch: samples.send(store, rank, number, batch))
    told = {**loop.told(), "bits": bits(policy)}
    store.set(_told_by(rank), json.dumps(told))


def _told_by(rank: int) -> str:
    return f"told/{rank}"


def new_policy(order: Order) -> Policy:
    """A policy with weights at random."""
    return Policy(VOCABULARY, LENGTH, order.width, order.depth)


def policy_of(order: Order) -> Policy:
    """The policy as it was before the first version."""
    policy = new_policy(order)
    load(policy, Path(order.start))
    return policy


def sender_of(order: Order, policy: Policy, store: Store) -> Sender:
    """The trainer's end of the transfer."""
    if order.transfer == DELTAS:
        return DeltaSender(policy, store)
    return WholeSender(policy, gloo(store, 0, 1 + READERS, order.timeout_s))


def reader_of(order: Order, policy: Policy, store: Store, rank: int) -> Reader:
    """A reader's end of the transfer."""
    if order.transfer == DELTAS:
        return DeltaReader(policy, store, order.timeout_s)
    number = 1 + rank - TRAINERS
    return WholeReader(policy, gloo(store, number, 1 + READERS, order.timeout_s))


def bits(policy: nn.Module) -> str:
    """A digest of all parameters' bits."""
    return sha256(flat(policy).view(torch.uint8).numpy().tobytes()).hexdigest()


def connected(order: Order) -> TCPStore:
    """A connection to the store, which is on the first host."""
    return TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        timeout=timedelta(seconds=order.timeout_s),
    )


def serving(order: Order) -> TCPStore:
    """The store itself."""
    return TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=True,
        timeout=timedelta(seconds=order.timeout_s),
        wait_for_workers=False,
    )


def main() -> None:
    """Train or read, by rank."""
    tell = claim_stdout()
    order = Order(**json.loads(sys.argv[1]))
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    store = serving(order) if rank == 0 else connected(order)
    if rank < TRAINERS:
        train(order, rank, store, tell)
    else:
        read(order, rank, store)


if __name__ == "__main__":
    main()
