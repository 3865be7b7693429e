"""Ray Train: the backend is an argument of the configuration of torch.

python examples/integrations/ray_train.py
python examples/integrations/ray_train.py gloo
"""

import sys
import tempfile

import ray
import ray.train.torch
import torch
import torch.distributed as dist
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from task import BATCH, LEARNING_RATE, data, new_model, show
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler


def train() -> None:
    model = ray.train.torch.prepare_model(new_model())
    dataset = data()
    loader = DataLoader(dataset, BATCH, sampler=DistributedSampler(dataset, shuffle=False))
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    for items, scores in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(items), scores).backward()
        optimizer.step()
    show(model.module)
    dist.barrier()


def main(backend: str) -> None:
    ray.init(num_cpus=4, include_dashboard=False, _node_ip_address="127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        TorchTrainer(
            train,
            torch_config=TorchConfig(backend=backend),
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=folder),
        ).fit()
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sparsewire")
