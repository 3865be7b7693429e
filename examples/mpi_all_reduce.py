"""Sums NumPy arrays over the ranks that mpirun starts, which meet over MPI.

    mpirun -n 4 python examples/mpi_all_reduce.py

Needs mpi4py, and the mpirun of the same MPI.
"""

import numpy as np
from mpi4py import MPI

import sparsewire


def main() -> None:
    with sparsewire.init(MPI.COMM_WORLD) as comm:
        gradient = np.zeros((10_000, 256), np.float32)
        gradient[[comm.rank, -1]] = 1.0

        total = comm.all_reduce(gradient)
        if comm.rank == 0:
            rows = ", ".join(map(str, np.flatnonzero(total.any(axis=1))))
            print(f"non-zero rows of the sum: {rows}; the last one is {total[-1, 0]:g}")


if __name__ == "__main__":
    main()
