"""What torch 2.14 and newer ask of a backend: entry point, flight recorder, errors, abort hooks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from importlib.metadata import entry_points, requires
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lost_rank import SURVIVED, assert_others_survived, await_others
from ranks import Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.torch_version import TorchVersion

import sparsewire
from sparsewire.torch import hooks, register, stats, status
from sparsewire.torch.backend import OLDEST, TAKES_BACKENDS, member_of

NewRanks = Callable[..., Ranks]
CPU = torch.device("cpu")

# Before 2.15 a recorder is attached by hand, and keeps the entries of all backends together.
from_2_15 = pytest.mark.skipif(
    TorchVersion(torch.__version__) < TorchVersion("2.15"), reason="torch before 2.15"
)
from_2_14 = pytest.mark.skipif(not TAKES_BACKENDS, reason="torch before 2.14")


def test_the_entry_point_registers() -> None:
    (found,) = entry_points(group="torch.distributed.backends", name="sparsewire")
    assert found.load() is register


def test_torch_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.8.1")
    with pytest.raises(ImportError, match=rf"needs torch {OLDEST} or newer, and this is 2\.8\.1"):
        register()
    # What pip is told, and what `make torch-matrix` runs.
    named = [each for each in requires("sparsewire") or [] if each.startswith("torch>=")]
    assert {each.split(";")[0].strip() for each in named} == {f"torch>={OLDEST}"}


@pytest.mark.parametrize(
    "use", [hooks.DianaState, hooks.ErrorFeedbackState, hooks.TopKState, stats, status]
)
def test_without_a_process_group_the_error_says_what_to_call(use: Callable[[], object]) -> None:
    with pytest.raises(sparsewire.Error, match=r"init_process_group first"):
        use()


# Forked, programs find torch and its compiler loaded, which take long, and nothing else.
ALONE = """
import itertools, os, sys, torch, torch._dynamo, torch.distributed as dist

def run(backend, debug):
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = debug
    dist.set_debug_level_from_env()
    assert "sparsewire.torch" not in sys.modules
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(3))
    dist.new_group([0])
    dist.destroy_process_group()
    sys.exit("sparsewire.torch" not in sys.modules)

backends = ["sparsewire", "cpu:sparsewire,cuda:gloo", "cpu:sparsewire"]
for backend, debug in itertools.product(backends, ["OFF", "DETAIL"]):
    child = os.fork()
    if child == 0:
        run(backend, debug)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(f"{backend} {debug}: {status}", flush=True)
"""


@pytest.mark.timeout(180)
def test_no_import_is_needed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=150, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    assert all(line.endswith(": 0") for line in lines), (lines, done.stderr)


def is_a_backend() -> None:
    group: Any = dist.group.WORLD
    backend = dist.get_backend_impl()
    assert backend is group._get_backend(CPU) is member_of(group)
    assert isinstance(backend, torch._C._distributed_c10d.Backend)
    assert backend.name() == backend.options.backend == group.name() == "sparsewire"
    assert backend.rank() == dist.get_rank()
    assert backend.size() == dist.get_world_size()
    assert not backend.supports_reconfigure
    assert not group.supports_reconfigure
    assert not backend.supports_splitting
    assert not backend.supports_shrinking
    assert not backend.supports_window
    assert backend.get_error() == torch._C._distributed_c10d.ErrorType.SUCCESS


@from_2_14
def test_backend_and_its_properties(ranks: Ranks) -> None:
    ranks.run(is_a_backend)


def recorded(backend: str) -> list[str]:
    trace = torch._C._distributed_c10d._dump_fr_trace_json(backend=backend)
    return [entry["profiling_name"] for entry in json.loads(trace).get("entries", [])]


def collectives_in_the_recorder() -> None:
    before = len(recorded("sparsewire"))
    sparse = torch.eye(3).to_sparse()
    dist.all_reduce(torch.ones(3))
    dist.broadcast(torch.ones(3), src=0)
    dist.all_gather([torch.ones(3) for _ in range(dist.get_world_size())], torch.ones(3))
    dist.all_reduce(sparse)
    dist.broadcast(sparse, src=0)
    dist.barrier()
    names = recorded("sparsewire")[before:]
    expected = ["all_reduce", "broadcast", "all_gather", "all_reduce", "broadcast", "barrier"]
    assert [name.removeprefix("sparsewire:") for name in names] == expected, names


@from_2_15
def test_flight_recorder(ranks: Ranks) -> None:
    ranks.run(collectives_in_the_recorder)


def hooks_in_the_recorder(state_type: type, hook: Any) -> None:
    model = DistributedDataParallel(nn.Linear(200, 200))
    model.register_comm_hook(state_type(), hook)
    before = len(recorded("sparsewire"))
    model(torch.ones(4, 200)).sum().backward()
    assert recorded("sparsewire")[before:] == ["sparsewire:all_gather"]


@from_2_15
@pytest.mark.parametrize(
    "arguments",
    [
        (hooks.TopKState, hooks.topk_hook),
        (hooks.ErrorFeedbackState, hooks.error_feedback_hook),
    ],
    ids=["topk", "error_feedback"],
)
def test_flight_recorder_sees_what_hooks_send(ranks: Ranks, arguments: tuple[Any, ...]) -> None:
    ranks.run(hooks_in_the_recorder, *arguments)


def lose_a_rank(lost: int) -> str:
    group: Any = dist.group.WORLD
    ran = []
    group.register_abort_hook(7, lambda: ran.append(7))
    group.register_abort_hook(8, lambda: ran.append(8))
    group.register_abort_hook(9, lambda: 1 / 0)
    group.unregister_abort_hook(8)
    await_others()
    if dist.get_rank() == lost:
        raise SystemExit
    with pytest.raises(sparsewire.PeerLost):
        dist.all_reduce(torch.ones(3))
    with pytest.raises(sparsewire.PeerLost):
        dist.all_reduce(torch.ones(3))
    assert ran == [7]
    assert dist.get_backend_impl().get_error() == torch._C._distributed_c10d.ErrorType.REMOTE_ERROR
    return SURVIVED


@from_2_14
def test_a_lost_rank_runs_abort_hooks_once_and_is_the_error(new_ranks: NewRanks) -> None:
    assert_others_survived(new_ranks(3).outcomes(lose_a_rank, 1), lost=1)


def time_out() -> str:
    kinds = torch._C._distributed_c10d.ErrorType
    if dist.get_rank() == 0:
        work = dist.get_backend_impl().allreduce([torch.ones(3)], timeout=timedelta(seconds=0.5))
        # Nobody waits for the work, and yet the error is found.
        deadline = time.monotonic() + 20
        while dist.get_backend_impl().get_error() == kinds.SUCCESS and time.monotonic() < deadline:
            time.sleep(0.01)
        assert dist.get_backend_impl().get_error() == kinds.TIMEOUT
        assert isinstance(work.exception(), sparsewire.Timeout)
    return SURVIVED


@from_2_14
def test_a_timeout_is_the_error(new_ranks: NewRanks) -> None:
    assert new_ranks(2).outcomes(time_out)[0] == SURVIVED


def abort_here() -> str:
    group: Any = dist.group.WORLD
    ran = []
    group.register_abort_hook(1, lambda: ran.append(dist.is_initialized()))
    work = dist.all_reduce(torch.ones(3), async_op=True) if dist.get_rank() == 0 else None
    if dist.get_rank() == 1:
        dist.distributed_c10d._abort_process_group()
        assert ran == [True]
    else:
        assert work is not None
        with pytest.raises(sparsewire.Error, match="rank 1"):
            work.wait()
    return SURVIVED


@from_2_14
def test_abort_runs_the_hooks_and_reaches_the_others(new_ranks: NewRanks) -> None:
    assert new_ranks(2).run(abort_here) == [SURVIVED, SURVIVED]


def works_are_of_sparsewire() -> None:
    """Torch's wrappers of them would never be completed."""
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    assert work.is_completed()
    assert work.is_success()
    assert work.result()[0].eq(dist.get_world_size()).all()
    gathered = [torch.zeros(3) for _ in range(dist.get_world_size())]
    work = dist.all_gather(gathered, torch.ones(3), async_op=True)
    work.wait()
    assert work.is_completed()


def test_works(ranks: Ranks) -> None:
    ranks.run(works_are_of_sparsewire)
