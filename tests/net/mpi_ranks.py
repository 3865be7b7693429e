"""What the ranks of test_mpi.py do: `mpirun ... python -m mpi4py mpi_ranks.py FUNCTION`."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from mpi4py import MPI

import sparsewire

WORLD = MPI.COMM_WORLD
BLOCK = 256


def sparse(rank: int) -> np.ndarray:
    """Values of one rank, (40 * BLOCK,): one block of its own and one that all have."""
    values = np.zeros((40, BLOCK), np.float32)
    values[[rank, 39]] = np.random.default_rng(rank).standard_normal((2, BLOCK))
    return values.ravel()


def check_sum(comm: sparsewire.Communicator, members: list[int]) -> None:
    """The sum over `members`, ranks of the world, is right and the same to the bit on all."""
    total = comm.all_reduce(sparse(WORLD.Get_rank()))
    np.testing.assert_array_equal(total, sum(sparse(rank) for rank in members))


def world() -> None:
    with sparsewire.init(WORLD, timeout=20) as comm:
        assert (comm.rank, comm.world_size) == (WORLD.Get_rank(), WORLD.Get_size())
        check_sum(comm, list(range(comm.world_size)))
    assert "torch" not in sys.modules


def several_at_once() -> None:
    """Two communicators over one MPI communicator, and one over each half, in turns."""
    ranks = list(range(WORLD.Get_size()))
    half = WORLD.Split(WORLD.Get_rank() % 2, key=-WORLD.Get_rank())
    with (
        sparsewire.init(WORLD, timeout=20) as first,
        sparsewire.init(half, timeout=20) as part,
        sparsewire.init(WORLD, timeout=20) as second,
    ):
        assert part.rank == half.Get_rank()
        for _ in range(3):
            check_sum(second, ranks)
            check_sum(part, ranks[WORLD.Get_rank() % 2 :: 2][::-1])
            check_sum(first, ranks)
    half.Free()


def beside_messages() -> None:
    """A receive from anybody of anything, already posted, gets the program's own message."""
    ours = bytearray(8)
    receive = WORLD.Irecv([ours, MPI.BYTE], MPI.ANY_SOURCE, MPI.ANY_TAG)
    with sparsewire.init(WORLD, timeout=20) as comm:
        WORLD.Send([b"user's 8", MPI.BYTE], (comm.rank + 1) % comm.world_size)
        receive.Wait()
        assert ours == b"user's 8"
        check_sum(comm, list(range(comm.world_size)))


def after_finalize() -> None:
    """The connections are no longer MPI's."""
    comm = sparsewire.init(WORLD, timeout=20)
    MPI.Finalize()
    comm.barrier()
    comm.close()
    with pytest.raises(ValueError, match="finalized already"):
        sparsewire.init(WORLD)


def large_records() -> None:
    """Many aggregators make records so large that sending them waits for receiving."""
    names = [f"127.0.0.1:{port}" for port in range(1, 5000)]
    with pytest.raises(sparsewire.Timeout, match="aggregator cannot be reached at"):
        sparsewire.init(WORLD, timeout=1, aggregators=names)


def late_rank() -> None:
    """Rank 2 comes only when the others have given up, twice; then all succeed."""
    word = bytearray(1)
    if WORLD.Get_rank() == 2:
        for rank in {*range(WORLD.Get_size())} - {2}:
            WORLD.Recv([word, MPI.BYTE], rank)
    else:
        for _ in range(2):
            expect_absent("rank 2")
        WORLD.Send([word, MPI.BYTE], 2)
    world()


def missing_at_a_later_init() -> None:
    world()
    if WORLD.Get_rank() == 3:
        expect_absent("ranks 0, 1, 2")


class Interrupted(MPI.Intracomm):
    """The user's Ctrl-C comes as the rank is about to gather."""

    def Iallgather(self, *_: object) -> MPI.Request:
        raise KeyboardInterrupt


def interrupted_halfway() -> None:
    """The others cannot take back what they began; a duplicate has nothing to take back."""
    if WORLD.Get_rank() == 2:
        with pytest.raises(KeyboardInterrupt):
            sparsewire.init(Interrupted(WORLD), timeout=20)
    else:
        with pytest.raises(sparsewire.Timeout, match=r"^some rank gave up before all had"):
            sparsewire.init(WORLD, timeout=1)
        with pytest.raises(sparsewire.Error, match=r"ended halfway on some rank: .* by Dup\(\)$"):
            sparsewire.init(WORLD, timeout=1)
    with sparsewire.init(WORLD.Dup(), timeout=20) as comm:
        check_sum(comm, list(range(comm.world_size)))


def ranks_that_never_come() -> None:
    if WORLD.Get_rank() not in (1, 2):
        expect_absent("ranks 1, 2")


def expect_absent(names: str) -> None:
    """The others come in time, also where four processes share two busy processors."""
    with pytest.raises(sparsewire.Timeout, match=f"^{names} did not call sparsewire.init with"):
        sparsewire.init(WORLD, timeout=3)


def launched() -> None:
    """The launcher's variables alone say who this is."""
    with sparsewire.init(timeout=20) as comm:
        assert comm.world_size == WORLD.Get_size()
        check_sum(comm, list(range(comm.world_size)))


def mismatch() -> None:
    """Settings are compared over MPI, too."""
    with pytest.raises(sparsewire.MismatchError, match="lanes"):
        sparsewire.init(WORLD, timeout=20, lanes=1 + WORLD.Get_rank())


def refused() -> None:
    """What is no usable communicator, and what contradicts it, gets an error at once."""
    freed = WORLD.Dup()
    freed.Free()
    left = WORLD.Split(0 if WORLD.Get_rank() else 1)
    bridge = left.Create_intercomm(0, WORLD, 0 if WORLD.Get_rank() else 1)
    for comm, message in (
        (MPI.COMM_NULL, "null or was freed"),
        (freed, "null or was freed"),
        (bridge, "inter-communicator"),
    ):
        with pytest.raises(ValueError, match=message):
            sparsewire.init(comm)
    with pytest.raises(ValueError, match="rank=7, but the MPI communicator says"):
        sparsewire.init(WORLD, rank=7)
    with pytest.raises(ValueError, match="world_size=7, but the MPI communicator says"):
        sparsewire.init(WORLD, world_size=7)
    bridge.Free()
    left.Free()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("passed")
