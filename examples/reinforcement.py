"""Reinforcement learning: two ranks train a policy, and two readers sample with what they publish.

    sudo sparsewire lab --hosts 4 --link 100mbit -- python examples/reinforcement.py
    torchrun --standalone --nproc-per-node 4 examples/reinforcement.py

Trainers are ranks of one process group. Readers are in no group: they need the publisher's address,
and a way to send samples back, here a store of torch's. The policy, a small GPT, its task and its
loss are those of `sparsewire demo --what weights`.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from sparsewire.tools.training.reinforcement import samples
from sparsewire.tools.training.reinforcement.learner import Masters, learn
from sparsewire.tools.training.reinforcement.policy import Policy
from sparsewire.tools.training.reinforcement.pretraining import pretrain
from sparsewire.tools.training.reinforcement.reversal import LENGTH, VOCABULARY
from sparsewire.tools.training.reinforcement.sampling import sampled
from sparsewire.weights import Publisher, Receiver, Staged

TRAINERS = 2
READERS = [2, 3]
VERSIONS = 20
PROMPTS, ANSWERS = 8, 8
RATE = 1e-4


def main() -> None:
    torch.set_num_threads(1)
    store, rank, _ = next(dist.rendezvous("env://"))
    policy = Policy(VOCABULARY, LENGTH, width=128, depth=2)
    if rank < TRAINERS:
        train(rank, store, policy)
    else:
        read(rank, store, policy)


def train(rank: int, store: dist.Store, policy: Policy) -> None:
    own = dist.PrefixStore("trainers", store)
    dist.init_process_group("sparsewire", store=own, rank=rank, world_size=TRAINERS)
    if rank == 0:
        pretrain(policy, steps=60, seed=0)
    ddp = DistributedDataParallel(policy)  # rank 1 gets the weights of rank 0
    masters = Masters(policy.parameters(), RATE, warmup=5)
    with Publisher(f"{os.environ['MASTER_ADDR']}:0") if rank == 0 else nullcontext() as publisher:
        if publisher:
            publisher.publish(policy)
            store.set("publisher", str(publisher.address))
        for number in range(VERSIONS):
            batch = samples.receive(store, READERS[rank], number, PROMPTS * ANSWERS)
            reward = learn(ddp, masters, batch, ANSWERS)
            if publisher:
                told = publisher.publish(policy)
                print(
                    f"version {told.version:2}: reward {reward:.2f}, {told.nbytes:,} of "
                    f"{told.whole_nbytes:,} bytes to each reader",
                    flush=True,
                )
        store.wait([f"done/{reader}" for reader in READERS])
    dist.destroy_process_group()


def read(rank: int, store: dist.Store, policy: Policy) -> None:
    generator = torch.Generator().manual_seed(rank)
    address = store.get("publisher").decode()
    with Receiver(address, policy) as receiver, ThreadPoolExecutor(1) as pool:
        receiver.stage().apply()
        coming = pool.submit(ready, receiver)
        for number in range(VERSIONS):
            # Weights may be one version old, so trainers and readers work at the same time.
            if receiver.version < number - 1:
                coming.result().apply()
                coming = pool.submit(ready, receiver)
            batch = sampled(policy, receiver.version, PROMPTS, ANSWERS, generator)
            samples.send(store, rank, number, batch)
        coming.result().apply()
    store.set(f"done/{rank}", "")


def ready(receiver: Receiver) -> Staged:
    """The next version, received and verified beside the sampling."""
    return receiver.stage().verify()


if __name__ == "__main__":
    main()
