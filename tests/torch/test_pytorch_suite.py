"""PyTorch's own suite of process groups, which its wheel ships, over groups made by sparsewire.

The suite asks for gloo by name and gets sparsewire; with SPARSEWIRE_TESTS_SUITE=gloo it gets gloo,
to compare. What asks for gloo's very name is named here, with the reason.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("expecttest", reason="PyTorch's suite needs expecttest")

import torch.distributed as dist
from pytorch_suite import ENVIRONMENT, suite
from torch.distributed import distributed_c10d as c10d

SERVED_BY = os.environ.get("SPARSEWIRE_TESTS_SUITE", "sparsewire")

NEED_THE_NAME = {"test_get_backend": "expects that get_backend() is gloo"}

# What `make test` runs of it; `make test-all` runs the rest.
QUICK = [
    "test_DistributedDataParallelCPU",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
    "test_all_gather_coalesced_with_empty",
    "test_all_gather_complex",
    "test_all_gather_object_subgroup",
    "test_all_reduce_coalesced_full_group_sum",
    "test_all_reduce_complex_unsupported_ops",
    "test_all_reduce_full_group_max",
    "test_all_reduce_sum",
    "test_all_reduce_sum_async",
    "test_all_reduce_sum_complex",
    "test_barrier_full_group",
    "test_barrier_timeout_full_group",
    "test_batch_isend_irecv_gloo",
    "test_broadcast",
    "test_broadcast_full_group",
    "test_ddp_logging_data_cpu",
    "test_destroy_full_group",
    "test_gather_checks",
    "test_get_future",
    "test_isend_torch_profiler",
    "test_monitored_barrier_gloo",
    "test_monitored_barrier_gloo_rank_0_timeout",
    "test_reduce_full_group_min",
    "test_reduce_sum_twice",
    "test_scatter_object_list",
    "test_send_recv_any_source_autograd_profiler",
    "test_send_recv_with_tag",
    "test_sparse_all_reduce_sum",
    "test_static_graph_api_cpu",
]

# Forked from a server that has imported the suite, ranks start in no time.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["torch._dynamo", "pytorch_suite"])


class TestProcessGroup(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    """The suite's tests, each in three processes of its own."""

    @pytest.fixture(autouse=True)
    def _environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Not for other tests, whose processes would read it, too."""
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(name, value)

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(_rank)


def _sort_out() -> None:
    """Leave out what needs the name, and have `make test` run no more than the quick tests."""
    for name in [name for name in dir(TestProcessGroup) if name.startswith("test_")]:
        if name in NEED_THE_NAME and SERVED_BY != "gloo":
            skip = pytest.mark.skip(reason=NEED_THE_NAME[name])
            setattr(TestProcessGroup, name, skip(_own(name)))
        elif name not in QUICK:
            setattr(TestProcessGroup, name, pytest.mark.exhaustive(_own(name)))


def _own(name: str) -> Callable[[Any], None]:
    """A function that marks do not share with others."""
    inherited = getattr(TestProcessGroup, name)

    @functools.wraps(inherited)
    def own(self: TestProcessGroup) -> None:
        inherited(self)

    return own


# Older and newer versions of PyTorch lack a few.
assert sum(hasattr(TestProcessGroup, name) for name in QUICK) > 0.8 * len(QUICK)
_sort_out()


def _rank(*, name: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    everything = (dict(os.environ), target, args, kwargs)
    return _processes.Process(name=name, target=_run, args=everything)


def _run(
    environment: dict[str, str], target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    os.environ.update(environment)
    suite.INIT_METHOD = environment["INIT_METHOD"]
    for name in ("init_process_group", "new_group"):
        made_by_us = _made_by(SERVED_BY, getattr(c10d, name))
        setattr(c10d, name, made_by_us)
        setattr(dist, name, made_by_us)
    # monitored_barrier asks before it calls the group, which serves it.
    c10d.get_backend = lambda group=None: "gloo"
    target(*args, **kwargs)


def _made_by(backend: str, make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, **kwargs: Any) -> Any:
        named = [backend if argument == "gloo" else argument for argument in args]
        if kwargs.get("backend") == "gloo":
            kwargs["backend"] = backend
        return make(*named, **kwargs)

    return made
