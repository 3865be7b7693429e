"""Membership by torchft: its lighthouse knows who is alive, and its Manager asks for quorums."""

from __future__ import annotations

import re
import secrets
import threading
import urllib.request
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torchft.checkpointing import CheckpointTransport
from torchft.manager import Manager
from torchft.process_group import ProcessGroup, create_store_client

from sparsewire.errors import Error, Timeout
from sparsewire.torch.outer.membership.membership import Epoch, Membership, Unanswered

# As the lighthouse's page has it: the Manager appends a UUID to the replica's name.
_HEARTBEAT = re.compile(r"([^\s<>:]+):[0-9a-f-]{36}: seen ([0-9.]+)s ago")
_ALIVE_S = 1.0
_CONNECT = timedelta(seconds=30)
_PAGE_BYTES = 1 << 20
_PAGE_TIMEOUT_S = 1.0


class TorchftMembership(Membership):
    """Members that torchft's lighthouse at `lighthouse` ("http://host:port") knows to be alive.

    `name` is this replica's; each life gets a suffix of its own. `host` is the address at which
    other replicas reach this one. The lighthouse says how many replicas a job needs, and after
    which silence one is lost: start it with `--heartbeat_timeout_ms 1000`, or everybody waits 5 s
    for each that dies. `timeout`: seconds that a quorum may take, at the start and for newcomers.

    Raises Timeout if nothing answers at `lighthouse` within 30 s.
    """

    def __init__(
        self,
        lighthouse: str,
        name: str,
        *,
        host: str = "127.0.0.1",
        timeout: float = 600.0,
    ) -> None:
        self.name = f"{name}-{secrets.token_hex(4)}"
        self._lighthouse = lighthouse
        self._timeout = timedelta(seconds=timeout)
        self._quorum = Quorum()
        self._closed = threading.Event()
        self._served = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        try:
            self._manager = self._managed(host)
        except (RuntimeError, TimeoutError) as error:
            raise Timeout(
                f"no lighthouse at {lighthouse!r} ({error}): start torchft_lighthouse there, and "
                "write http://HOST:PORT"
            ) from error

    def _managed(self, host: str) -> Any:
        """A Manager that only asks for quorums: the shared state travels with the rounds."""
        return Manager(
            pg=self._quorum,
            load_state_dict=None,
            state_dict=None,
            min_replica_size=1,
            use_async_quorum=False,
            init_sync=False,
            replica_id=self.name,
            store_addr=host,
            store_port=self._served.port,
            rank=0,
            world_size=1,
            lighthouse_addr=self._lighthouse,
            hostname=host,
            timeout=self._timeout,
            quorum_timeout=self._timeout,
            connect_timeout=_CONNECT,
            checkpoint_transport=_NoCheckpoints(),
        )

    def reconfigure(self, last: Epoch | None, lost: Collection[str]) -> Epoch:
        if self._closed.is_set():
            raise Error(f"the membership of replica {self.name!r} is closed: make a new one")
        try:
            if last is not None:
                self._refuse_last()
            self._manager.start_quorum(allow_heal=False, timeout=self._timeout)
            return self._epoch()
        except TimeoutError as error:
            raise Unanswered(
                f"the lighthouse at {self._lighthouse} gave replica {self.name!r} no quorum "
                f"({error}): are as many replicas alive as its min_replicas?"
            ) from error
        except dist.DistError as error:
            raise Error(f"lost the store of this quorum: {error}") from error

    def _refuse_last(self) -> None:
        """Have the lighthouse number the next quorum anew, also with the same members."""
        self._manager.report_error(Error("the members meet again"))
        self._manager.should_commit()

    def _epoch(self) -> Epoch:
        quorum = self._quorum
        store: Any = PrefixStore("outer", create_store_client(quorum.store_address, _CONNECT))
        store.set(f"name/{quorum.rank}", self.name)
        members = [store.get(f"name/{rank}").decode() for rank in range(quorum.size)]
        return Epoch(quorum.number, tuple(members), quorum.rank, store)

    def wishes(self, epoch: Epoch) -> bool:
        """Whether the lighthouse hears a replica that is no member, and waits for a quorum."""
        alive = {name for name, age in self._heartbeats() if age < _ALIVE_S}
        return bool(alive - {*epoch.members})

    def _heartbeats(self) -> list[tuple[str, float]]:
        """The replicas that the lighthouse's page names, and how long ago it heard of each."""
        try:
            with urllib.request.urlopen(
                f"{self._lighthouse}/status", None, _PAGE_TIMEOUT_S
            ) as page:
                text = page.read(_PAGE_BYTES).decode(errors="replace")
        except OSError:
            return []
        return [(name, float(age)) for name, age in _HEARTBEAT.findall(text)]

    def close(self) -> None:
        """End the heartbeats, and a quorum that is waited for. Idempotent."""
        self._closed.set()
        self._manager.shutdown(wait=False)


class _NoCheckpoints(CheckpointTransport[Any]):  # type: ignore[misc]
    """Has a Manager serve no state: torchft's own transport would listen for whoever asks."""

    def metadata(self) -> str:
        return ""

    def send_checkpoint(self, *_: object, **__: object) -> None:
        raise NotImplementedError

    def recv_checkpoint(self, *_: object, **__: object) -> Any:
        raise NotImplementedError

    def disallow_checkpoint(self) -> None:
        """Nothing is served."""

    def shutdown(self, wait: bool = True) -> None:
        """Nothing runs."""


class Quorum(ProcessGroup):  # type: ignore[misc]
    """In place of a process group in a Manager: keeps what the Manager would configure it with."""

    def __init__(self) -> None:
        super().__init__(0, 1)
        self.number = -1
        self.rank, self.size = -1, 0
        self.store_address = ""

    def configure(
        self,
        store_addr: str,
        replica_id: str,
        rank: int,
        world_size: int,
        quorum_id: int | None = None,
        *_others: object,
        **_named: object,
    ) -> None:
        self.number = -1 if quorum_id is None else quorum_id
        self.rank, self.size = rank, world_size
        self.store_address = store_addr

    def errored(self) -> Exception | None:
        return None
