"""The checkpoint engine for verl: by its documented protocol, and by the real package.

In the first the rollout's worker is a process of its own; both follow `CheckpointEngineManager`:
prepare, build_topology, init_process_group, send and receive at the same time, finalize.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import policies
from calls import Process
from policies import Served, Tensors

from sparsewire.errors import InputError, MismatchError
from sparsewire.weights.engines.verl import Engine

KWARGS = {"bind": "127.0.0.1:0", "timeout": 30.0}


@pytest.fixture
def actor() -> Iterator[Engine]:
    engine = Engine(1 << 20, is_master=True, **KWARGS)
    yield engine
    engine.close()


def topology(actors: list[Engine], rollouts: int) -> tuple[list[dict], list[dict]]:
    """The arguments of `init_process_group` for each rank, as the manager deals them out."""
    metadata = [actor.prepare() for actor in actors] + [{}] * rollouts
    both = Engine.build_topology(len(actors), rollouts, metadata)
    assert all(len(values) == len(actors) for values in both[0].values())
    assert all(len(values) == rollouts for values in both[1].values())
    sizes = (len(actors), rollouts)
    first, second = (
        [{key: values[rank] for key, values in told.items()} for rank in range(size)]
        for told, size in zip(both, sizes, strict=True)
    )
    return first, second


def test_rollouts_get_each_step_of_the_actor(
    weights: Tensors, checkpoint: str, actor: Engine
) -> None:
    rollout = Process("verl_worker.py")
    rollout.call("new", checkpoint)
    other = Engine(1 << 20, **KWARGS)
    for number in range(3):
        policies.step(weights, number)
        actors, (reader,) = topology([actor, other], 1)
        actor.init_process_group(**actors[0])
        other.init_process_group(**actors[1])
        rollout.call("execute_checkpoint_engine", "init_process_group", reader)
        rollout.begin("update_weights", number + 10)
        metrics = asyncio.run(actor.send_weights(iter(weights.items()), global_steps=number + 10))
        assert asyncio.run(other.send_weights(iter(weights.items()))) == {}
        rollout.end()
        assert rollout.call("sums") == policies.sums(weights)
        assert metrics["sparsewire/version"] == number
        actor.finalize()
        rollout.call("execute_checkpoint_engine", "finalize", {})
    # Without a checkpoint the first version came whole, and then what changed.
    assert len(rollout.call("loaded")) < 3 * len(weights)
    rollout.close()


async def failing(weights: Tensors) -> AsyncIterator[tuple[str, Any]]:
    yield next(iter(weights.items()))
    raise RuntimeError("a rank is lost")


def test_a_gathering_that_fails_publishes_nothing(weights: Tensors, actor: Engine) -> None:
    told, _ = topology([actor], 0)
    actor.init_process_group(**told[0])
    with pytest.raises(RuntimeError, match="a rank is lost"):
        asyncio.run(actor.send_weights(failing(weights)))
    assert actor.prepare()["version"] == 0
    asyncio.run(actor.send_weights(iter(weights.items())))
    assert actor.prepare()["version"] == 1


def test_what_the_publisher_refuses_is_raised_in_the_loop(weights: Tensors, actor: Engine) -> None:
    told, _ = topology([actor], 0)
    actor.init_process_group(**told[0])
    asyncio.run(actor.send_weights(iter(weights.items())))
    # Nobody has called prepare since, so the version is the same.
    with pytest.raises(MismatchError, match="version 0 is not newer"):
        asyncio.run(actor.send_weights(iter(weights.items())))


def test_receiving_needs_a_group() -> None:
    async def receive() -> None:
        async for _ in Engine().receive_weights():
            pass

    with pytest.raises(InputError, match="init_process_group"):
        asyncio.run(receive())


def test_verl_itself_finds_and_drives_the_engine(
    weights: Tensors, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = pytest.importorskip("verl.checkpoint_engine.base")
    workers = pytest.importorskip("verl.workers.engine_workers")
    base.import_external_libs("sparsewire.weights.engines.verl_plugin")
    new = base.CheckpointEngineRegistry.new
    sending = new("sparsewire", is_master=True, bucket_size=1 << 20, **KWARGS)
    receiving = new("sparsewire", bucket_size=1 << 20, checkpoint=checkpoint, **KWARGS)
    assert isinstance(sending, base.CheckpointEngine)
    served = Served(checkpoint)

    class Adapter:
        async def update_weights(self, pairs: Any, **_: Any) -> None:
            served.model.load_weights([pair async for pair in pairs])

    actor = workers.ActorRolloutRefWorker.__new__(workers.ActorRolloutRefWorker)
    actor.config = SimpleNamespace(
        rollout=SimpleNamespace(checkpoint_engine=SimpleNamespace(backend="sparsewire"))
    )
    training = SimpleNamespace(get_per_tensor_param=lambda: (iter(weights.items()), None))
    actor.actor, actor.checkpoint_engine = SimpleNamespace(engine=training), sending
    rollout = base.CheckpointEngineWorker.__new__(base.CheckpointEngineWorker)
    rollout.checkpoint_engine, rollout.server_adapter = receiving, Adapter()

    async def synchronize() -> None:
        await asyncio.gather(
            type(rollout).update_weights.__wrapped__(rollout, global_steps=1),
            type(actor).update_weights.__wrapped__(actor, global_steps=1, mode="auto"),
        )

    for number in range(2):
        policies.step(weights, number)
        metadata = [sending.prepare(), receiving.prepare()]
        actors, readers = type(sending).build_topology(1, 1, metadata)
        sending.init_process_group(**{key: each[0] for key, each in actors.items()})
        receiving.init_process_group(**{key: each[0] for key, each in readers.items()})
        asyncio.run(synchronize())
        assert served.sums() == policies.sums(weights)
    sending.close()
    receiving.close()
