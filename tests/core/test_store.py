"""The store at MASTER_ADDR, as ranks use it: closed after each init, and its loss told at once."""

from __future__ import annotations

import os
import signal
import socket
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


@pytest.mark.parametrize("transport", ["colocated-3-lanes", "dedicated"])
@pytest.mark.parametrize("secret", ["", "a secret of the job's own"])
def test_the_store_closes_after_each_init(transport: str, secret: str, free_port: int) -> None:
    # Figures of the link that are given spare the ranks a collective at the end of init.
    more = {"SPARSEWIRE_LINK": "5e-5,1e-9,4e-9"}
    if secret and transport != "dedicated":
        more["SPARSEWIRE_SECRET"] = secret
    with environment_of(transport) as of_transport:
        settings = {**environment(free_port, **more), **of_transport}
        seen = run_ranks(WORLD_SIZE, init_again_and_again, environment=settings)
    assert seen == [[float(WORLD_SIZE), False] * 3] * WORLD_SIZE


def our_store(port: int, is_server: bool) -> Any:
    return sparsewire.TcpStore("127.0.0.1", port, is_server)


def torchs_store(port: int, is_server: bool) -> Any:
    from torch.distributed import TCPStore

    limit = timedelta(seconds=300)
    return TCPStore("127.0.0.1", port, None, is_server, limit, wait_for_workers=False)


def lose_store(make: Callable[[int, bool], Any]) -> float:
    """How long rank 1 takes to tell that rank 0, which hosts the store, was killed."""
    is_server = os.environ["RANK"] == "0"
    store = make(int(os.environ["MASTER_PORT"]), is_server)
    if is_server:
        wait_for("asking", [1])
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    tell("asking")
    start = time.monotonic()
    with pytest.raises(sparsewire.Error, match="lost the store") as lost:
        sparsewire.init(store)
    assert not isinstance(lost.value, sparsewire.Timeout)
    return time.monotonic() - start


@pytest.mark.parametrize("make", [our_store, torchs_store])
def test_loss_of_the_store_is_told_at_once(
    make: Callable[[int, bool], Any], free_port: int
) -> None:
    if make is torchs_store:
        pytest.importorskip("torch")
    settings = environment(free_port)
    _, seconds = run_ranks(2, lose_store, make, dying=[0], environment=settings)
    assert seconds < 20, "told only when the time for starting was over"
