"""Sums NumPy arrays over all ranks, without PyTorch.

On emulated hosts (Linux, root):

    sparsewire lab --hosts 4 --link 1gbit -- python examples/numpy_all_reduce.py

On this machine alone, started by the shell:

    export WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 SPARSEWIRE_IFNAME=lo
    for rank in 0 1 2 3; do RANK=$rank python examples/numpy_all_reduce.py & done; wait
"""

import time

import numpy as np

import sparsewire

ELEMENTS = 10_000_000
BLOCK = 256
NONZERO_BLOCKS = 400


def main() -> None:
    with sparsewire.init() as comm:
        gradient = sparse_array(seed=comm.rank)
        expected = sum(sparse_array(seed=rank) for rank in range(comm.world_size))

        comm.barrier()
        before, start = comm.stats()["bytes_sent"], time.perf_counter()
        total = comm.all_reduce(gradient)
        seconds, sent = time.perf_counter() - start, comm.stats()["bytes_sent"] - before

        # Sums come in rank order, so they are the same to the bit on every run.
        np.testing.assert_array_equal(total, expected)
        print(
            f"rank {comm.rank}: summed {gradient.nbytes / 1e6:.0f} MB in {seconds * 1e3:.1f} ms, "
            f"sent {sent / 1e6:.2f} MB"
        )


def sparse_array(seed: int) -> np.ndarray:
    """Return float32 values (ELEMENTS,), zero but for NONZERO_BLOCKS blocks."""
    random = np.random.default_rng(seed)
    values = np.zeros((ELEMENTS // BLOCK, BLOCK), np.float32)
    rows = random.choice(len(values), NONZERO_BLOCKS, replace=False)
    values[rows] = random.standard_normal((NONZERO_BLOCKS, BLOCK), np.float32)
    return values.ravel()


if __name__ == "__main__":
    main()
