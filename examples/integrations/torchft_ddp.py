"""torchft: replicas come and go while the others train on.

    python examples/integrations/torchft_ddp.py
    python examples/integrations/torchft_ddp.py sparsewire lose
    python examples/integrations/torchft_ddp.py gloo

With `lose`, one of the two replicas is killed half-way and started again. It takes the parameters
from the other one, the step that broke is repeated, and the result is that of an unbroken run.
"""

import os
import signal
import sys
from datetime import timedelta

import torch
import torch.multiprocessing as mp
from task import BATCH, LEARNING_RATE, STEPS, data, new_model, show
from torch import nn
from torch.distributed import TCPStore
from torchft import DistributedDataParallel, Manager, Optimizer
from torchft.coordination import LighthouseServer
from torchft.process_group import ProcessGroup, ProcessGroupGloo

REPLICAS = 2
TIMEOUT = timedelta(seconds=60)


def group_for(backend: str) -> ProcessGroup:
    if backend == "gloo":
        return ProcessGroupGloo(timeout=TIMEOUT)
    from sparsewire.torch.torchft import ProcessGroupSparsewire  # The one line.

    return ProcessGroupSparsewire(timeout=TIMEOUT)


def train(replica: int, lighthouse: str, backend: str, dies_at: int | None) -> None:
    torch.set_num_threads(1)
    model, group = new_model(), group_for(backend)
    plain = torch.optim.SGD(model.parameters(), LEARNING_RATE)

    def load(state: dict) -> None:
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])

    def state() -> dict:
        return {"model": model.state_dict(), "optimizer": plain.state_dict()}

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=group,
        load_state_dict=load,
        state_dict=state,
        # Half of the replicas would do; all of them make the result the same every time.
        min_replica_size=REPLICAS,
        use_async_quorum=False,
        replica_id=f"replica_{replica}",
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=lighthouse,
        hostname="127.0.0.1",
        timeout=TIMEOUT,
        quorum_timeout=TIMEOUT,
    )
    # One bucket for all parameters: with several, torchft 0.2 does not survive a lost replica.
    ddp = DistributedDataParallel(manager, model, bucket_cap_mb=100)
    optimizer = Optimizer(manager, plain)
    items, scores = data().tensors
    while manager.current_step() < STEPS:
        optimizer.zero_grad()
        step = manager.current_step()
        if step == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        first = (step * REPLICAS + replica) * BATCH
        batch = slice(first, first + BATCH)
        nn.functional.mse_loss(ddp(items[batch]), scores[batch]).backward()
        optimizer.step()
    show(model, replica, group._pg)
    manager.shutdown(wait=False)
    os._exit(0)


def main(backend: str, loses: bool) -> None:
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=REPLICAS, join_timeout_ms=1000)
    context = mp.get_context("spawn")

    def started(replica: int, dies_at: int | None = None) -> mp.Process:
        arguments = replica, lighthouse.address(), backend, dies_at
        process = context.Process(target=train, args=arguments)
        process.start()
        return process

    processes = [started(0), started(1, STEPS // 2 if loses else None)]
    if loses:
        processes[1].join()
        processes[1] = started(1)
    for process in processes:
        process.join()
    lighthouse.shutdown()
    sys.exit(any(process.exitcode for process in processes))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sparsewire", "lose" in sys.argv)
