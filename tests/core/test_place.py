"""The place at MASTER_ADDR, as ranks use it: closed after each init, its loss told at once."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from meeting import meet, tell, wait_for
from support import environment_of, run_ranks

import sparsewire

WORLD_SIZE = 3


def environment(port: int, **more: str) -> dict[str, str]:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SPARSEWIRE_RENDEZVOUS": ""}
    return {**place, **more}


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


def init_again_and_again() -> list[Any]:
    port = int(os.environ["MASTER_PORT"])
    seen: list[Any] = []
    for number in range(3):
        with sparsewire.init() as communicator:
            total = communicator.all_reduce(np.ones(3, np.float32))
            seen += [float(total[0]), is_open(port)]
            meet(f"seen {number}")
    return seen


@pytest.mark.matrix
@pytest.mark.parametrize("transport", ["colocated-3-lanes", "dedicated"])
@pytest.mark.parametrize("secret", ["", "a secret of the job's own"])
def test_the_place_closes_after_each_init(transport: str, secret: str, free_port: int) -> None:
    # Figures of the link that are given spare the ranks a collective at the end of init.
    more = {"SPARSEWIRE_LINK": "5e-5,1e-9,4e-9"}
    if secret and transport != "dedicated":
        more["SPARSEWIRE_SECRET"] = secret
    with environment_of(transport) as of_transport:
        settings = {**environment(free_port, **more), **of_transport}
        seen = run_ranks(WORLD_SIZE, init_again_and_again, environment=settings)
    assert seen == [[float(WORLD_SIZE), False] * 3] * WORLD_SIZE


def torchs_store() -> Any:
    from torch.distributed import TCPStore

    limit, is_host = timedelta(seconds=300), os.environ["RANK"] == "0"
    port = int(os.environ["MASTER_PORT"])
    return TCPStore("127.0.0.1", port, None, is_host, limit, wait_for_workers=False)


def lose_host(make: Callable[[], Any]) -> float:
    """How long rank 1 takes to tell that rank 0 was killed, while both wait for rank 2."""
    store, rank = make(), os.environ["RANK"]
    if rank == "2":
        return 0.0
    if rank == "0":
        threading.Thread(target=die, daemon=True).start()
        sparsewire.init(store)
    tell("asking")
    start = time.monotonic()
    with pytest.raises(sparsewire.Error, match="lost the place where the ranks meet") as lost:
        sparsewire.init(store)
    assert not isinstance(lost.value, sparsewire.Timeout)
    return time.monotonic() - start


def die() -> None:
    wait_for("asking", [1])
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def no_store() -> None:
    """Rank 0 hosts the place itself."""


@pytest.mark.parametrize("make", [no_store, torchs_store])
def test_loss_of_rank_0_is_told_at_once(make: Callable[[], Any], free_port: int) -> None:
    if make is torchs_store:
        pytest.importorskip("torch")
    settings = environment(free_port)
    _, seconds, _ = run_ranks(3, lose_host, make, dying=[0], environment=settings)
    assert seconds < 20, "told only when the time for starting was over"
