"""The checkpoint engine under verl's own manager, on Ray: two ranks train, and two serve.

It takes verl with Ray, and half a minute. It was run with 0.9.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytest.importorskip("verl")

import ray
import verl_roles
from verl.checkpoint_engine import CheckpointEngineManager
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.workers.config import CheckpointEngineConfig, RolloutConfig

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(300)]

HERE = Path(__file__).parent


@pytest.fixture
def cluster() -> Iterator[None]:
    sources = HERE.parents[2] / "src"
    told = {"PYTHONPATH": f"{sources}:{HERE}", "SPARSEWIRE_SECRET": "a secret of tests"}
    # verl asks for ten processors for each actor; they are only counted.
    ray.init(num_cpus=64, include_dashboard=False, runtime_env={"env_vars": told})
    yield
    ray.shutdown()


def group(made: RayClassWithInitArgs) -> RayWorkerGroup:
    pool = RayResourcePool(process_on_nodes=[2], use_gpu=False)
    return RayWorkerGroup(pool, made, device_name="cpu")


def test_rollouts_have_the_bits_of_each_step(cluster: None, tmp_path: Path) -> None:
    checkpoint = verl_roles.checkpoint_in(tmp_path)
    told = CheckpointEngineConfig(
        backend="sparsewire",
        custom_backend_module=verl_roles.PLUGIN,
        engine_kwargs={"sparsewire": {"checkpoint": checkpoint}},
    )
    rollout_config = RolloutConfig(name="vllm", checkpoint_engine=told)
    training = group(RayClassWithInitArgs(ray.remote(verl_roles.Training)))
    rollout = group(
        RayClassWithInitArgs(
            ray.remote(verl_roles.Rollout), rollout_config=rollout_config, checkpoint=checkpoint
        )
    )
    replicas = [verl_roles.Replica(rollout.workers)]
    manager = CheckpointEngineManager(config=told, actor_wg=training, replicas=replicas)
    for step in range(3):
        metrics = manager.update_weights(global_steps=step)
        assert metrics["sparsewire/version"] == step
        [wanted, same] = training.sums()
        assert wanted == same
        assert rollout.sums() == [wanted, wanted]
