"""Hooks whose gradients stay on their device do what they do on the host, and only codes cross."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from compressing import HOOKS, alone, attach, group_of, make_state, with_hook
from crossing import crossings
from device_double import cpu_as_device
from device_groups import DEVICES, assert_same_bits, double, staged_group, staging
from lost_rank import assert_others_survived, await_others, leave_or_go_backward
from models import FEATURES, Branching, Plain, batch_of, train
from ranks import Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sparsewire
from sparsewire.compress import CompressError
from sparsewire.torch.hooks.device_channel import channel_of
from sparsewire.torch.hooks.device_transfer import CodeTransfer

NewRanks = Callable[..., Ranks]

FEEDBACK = [
    "block-top-k:0.1:16",
    "span-top-k:4:50",
    "rounded:4:4+span-top-k:4:64",
    "rounded:8",
    "natural",
    "qsgd:7",
    "rand-k:0.1",
    "threshold:0.01",
    "sign:64",
]
DIANA = ["qsgd:7", "natural", "natural+rand-k:0.2", "identity"]
METHODS = [("feedback", name) for name in FEEDBACK] + [("diana", name) for name in DIANA]


def trained(
    kind: str, group: Any, model: type[nn.Module], **settings: Any
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """The weights, and what the method remembers, of this rank."""
    state = make_state(kind, group, **settings)
    options = {"find_unused_parameters": model is Branching, "bucket_cap_mb": 0.001}
    weights = train(model, group, prepare=with_hook(state), **options)[1]
    remembered = {
        f"{name}/{parameter}": vector
        for name, vectors in state.state_dict().items()
        if isinstance(vectors, dict) and name != "streams"
        for parameter, vector in vectors.items()
    }
    assert remembered
    return list(weights.values()), remembered


def as_on_the_host(
    kind: str, compressor: str, model: type[nn.Module], others: dict[str, Any]
) -> None:
    settings = {"compressor": compressor, **others}
    weights, remembered = trained(kind, group_of("sparsewire"), model, **settings)
    with staged_group("cpu") as group, crossings() as crossed:
        on_device = trained(kind, group, model, **settings)
        assert crossed.down > 0
        assert crossed.up > 0
    for one, other in zip(on_device[0], weights, strict=True):
        assert_same_bits(one, other)
    assert on_device[1].keys() == remembered.keys()
    for name, vector in on_device[1].items():
        assert_same_bits(vector, remembered[name])


@pytest.mark.parametrize(("kind", "compressor"), METHODS)
def test_same_bits_as_on_the_host(ranks: Ranks, kind: str, compressor: str) -> None:
    ranks.run(as_on_the_host, kind, compressor, Plain, {})


@pytest.mark.parametrize(
    "settings", [{"overlap": False}, {"warmup_steps": 2}, {"min_elements": 40}]
)
@pytest.mark.parametrize(("kind", "compressor"), [METHODS[0], METHODS[-4]])
def test_settings(ranks: Ranks, kind: str, compressor: str, settings: dict[str, Any]) -> None:
    ranks.run(as_on_the_host, kind, compressor, Plain, settings)


@pytest.mark.parametrize(("kind", "compressor"), [METHODS[0], METHODS[-4]])
def test_unused_parameters(ranks: Ranks, kind: str, compressor: str) -> None:
    ranks.run(as_on_the_host, kind, compressor, Branching, {})


def gradients_of(kind: str, group: Any, dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    """Those of four steps; in the third one rank overflows."""
    torch.manual_seed(2)
    model = DistributedDataParallel(
        nn.Linear(FEATURES, 64, dtype=dtype).to(device), process_group=group
    )
    state = make_state(kind, group, compressor="qsgd:7:16")
    attach(model, state)
    found = []
    for step in range(4):
        batch = batch_of(step)
        if step == 2 and dist.get_rank() == 1:
            batch[0, 0] = torch.inf
        model.zero_grad()
        model(batch.to(device, dtype)).square().sum().backward()
        found += [parameter.grad.clone() for parameter in model.parameters()]
    vectors = [each.named(state.parameters) for each in state.vectors().values()]
    return found + [vector for each in vectors for vector in each.values()]


def shows_what_is_not_finite(kind: str, dtype: torch.dtype, device: str) -> None:
    with staged_group(device) as group:
        actual = gradients_of(kind, group, dtype, device)
    assert not actual[4].isfinite().all()  # The third step's weight.
    assert all(each.isfinite().all() for each in actual[6:])
    if device == "cpu":
        expected = gradients_of(kind, group_of("sparsewire"), dtype, device)
        for step, (one, other) in enumerate(zip(actual, expected, strict=True)):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True, msg=str(step))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["feedback", "diana"])
def test_what_is_not_finite(ranks: Ranks, kind: str, dtype: torch.dtype, device: str) -> None:
    ranks.run(shows_what_is_not_finite, kind, dtype, device)


def with_little_room() -> None:
    with staged_group("cpu") as group:
        model = DistributedDataParallel(nn.Linear(FEATURES, 64), process_group=group)
        attach(model, make_state("feedback", group, compressor="block-top-k:0.1:16"))
        staging("cpu").down.pool._limit = 1  # One buffer at a time, whatever its size.
        for batch in (torch.ones(2, FEATURES), torch.full((2, FEATURES), torch.inf)):
            model.zero_grad()
            model(batch).sum().backward()
        assert not model.module.weight.grad.isfinite().any()


def test_what_is_not_finite_needs_no_room_beside_the_codes(new_ranks: NewRanks) -> None:
    new_ranks(2).run(with_little_room)


class Mixed(nn.Module):
    """Layers of two dtypes, and so two buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 32)
        self.second = nn.Linear(32, 1, dtype=torch.bfloat16)

    def forward(self, batch: torch.Tensor, step: int) -> torch.Tensor:
        return self.second(self.first(batch).bfloat16()).float()


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(("kind", "compressor"), [METHODS[0], METHODS[-4]])
def test_parameters_of_two_dtypes(ranks: Ranks, kind: str, compressor: str, overlap: bool) -> None:
    ranks.run(as_on_the_host, kind, compressor, Mixed, {"overlap": overlap})


def draws_in_order() -> None:
    with staged_group("cpu") as group:
        state, threads = make_state("diana", group), []
        make = state._draws._make

        def noting(parameter: torch.Tensor) -> Any:
            threads.append(threading.current_thread().name)
            return make(parameter)

        state._draws._make = noting
        train(Plain, group, prepare=with_hook(state))
        assert len(threads) == len(list(Plain().parameters()))
        assert not [name for name in threads if "device" in name]


def test_draws_are_made_in_the_order_of_the_program(ranks: Ranks) -> None:
    ranks.run(draws_in_order)


def only_codes_cross() -> None:
    with staged_group("cpu") as group:
        model = DistributedDataParallel(nn.Linear(256, 64), process_group=group)
        state = make_state("feedback", group, compressor="block-top-k:0.1", min_elements=100)
        attach(model, state)
        for _ in range(3):
            model.zero_grad()
            with crossings() as crossed:
                model(torch.randn(4, 256)).sum().backward()
            # Of 64 blocks six, each a number of four bytes and 256 elements; the bias as it is; and
            # two flags, in whole words of eight bytes.
            code, bias = 6 * (4 + 256 * 4), 64 * 4
            assert crossed.down == code + bias + 8
            assert crossed.up == 2 * (code + bias)
            assert not crossed.reads
        assert state.residuals.of(model.module.weight).count_nonzero() > 14_000


def test_only_codes_cross(ranks: Ranks) -> None:
    ranks.run(only_codes_cross)


def without_a_form() -> None:
    with staged_group("cpu") as group, crossings() as crossed:
        state = make_state("feedback", group, compressor="low-rank:1")
        train(Plain, group, prepare=with_hook(state))
        assert crossed.down == 0


def test_without_a_form_gradients_cross_whole(ranks: Ranks) -> None:
    ranks.run(without_a_form)


def waits_for_nothing() -> None:
    with staged_group("cpu") as group:
        model = DistributedDataParallel(Plain(), process_group=group, bucket_cap_mb=0.001)
        state, gate, done = make_state("feedback", group), threading.Event(), []

        def watched(state, bucket):  # DDP does not know annotations that are text.
            if bucket.index() == 0:
                gate.clear()
                channel_of(group)._channel._connected()[1]._down.put(gate.wait)
            future = HOOKS[type(state)](state, bucket)
            done.append(future.done())
            if bucket.is_last():
                gate.set()
            return future

        model.register_comm_hook(state, watched)
        steps = 3
        for step in range(steps):
            model(batch_of(step), step).sum().backward()
        assert len(done) > steps  # In its first step, DDP has but one bucket.
        assert not any(done)


def test_autograd_waits_neither_for_the_device_nor_for_ranks(ranks: Ranks) -> None:
    ranks.run(waits_for_nothing)


def goes_on(group: Any, steps: int, resumes: bool) -> list[torch.Tensor]:
    """Weights after so many steps, in the middle of which states are saved and loaded."""
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Linear(FEATURES, 64), process_group=group)
    state = make_state("feedback", group, compressor="natural+span-top-k:4")
    attach(model, state)
    for step in range(steps):
        if resumes and step == steps // 2:
            saved = state.state_dict()
            assert all(vector.is_cpu for vector in saved["residuals"].values())
            state.load_state_dict(saved)
        model.zero_grad()
        model(batch_of(step)).square().sum().backward()
    return [parameter.grad for parameter in model.parameters()]


def checkpoints() -> None:
    expected = goes_on(group_of("sparsewire"), 6, resumes=False)
    with staged_group("cpu") as group:
        for one, other in zip(goes_on(group, 6, resumes=True), expected, strict=True):
            assert_same_bits(one, other)


def test_checkpoints(ranks: Ranks) -> None:
    ranks.run(checkpoints)


def on_other_groups() -> None:
    expected = trained("feedback", group_of("gloo"), Plain)
    with staged_group("cpu"):
        actual = trained("feedback", group_of("gloo"), Plain)
    for one, other in zip(actual[0], expected[0], strict=True):
        assert_same_bits(one, other)


def test_on_a_group_of_gloo(ranks: Ranks) -> None:
    ranks.run(on_other_groups)


def leaves_no_thread() -> None:
    before = couriers()
    with staged_group("cpu"):
        group = dist.new_group(backend="gloo")
        train(Plain, group, prepare=with_hook(make_state("feedback", group)))
        assert len(couriers()) > len(before)
        dist.destroy_process_group(group)
        del group
        gc.collect()
    assert couriers() == before


def test_nothing_is_left_of_a_group_that_is_gone(new_ranks: NewRanks) -> None:
    new_ranks(2).run(leaves_no_thread)


def lost_in_backward(lost: int) -> str:
    with staged_group("cpu") as group:
        model = DistributedDataParallel(nn.Linear(FEATURES, 64), process_group=group)
        attach(model, make_state("diana", group))
        model(batch_of(0)).sum().backward()
        return leave_or_go_backward(model(batch_of(1)).sum(), lost)


def test_a_lost_rank_is_named_by_backward(new_ranks: NewRanks) -> None:
    assert_others_survived(new_ranks(3).outcomes(lost_in_backward, 1), 1)


def couriers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if "-device-" in each.name]


def aborted_in_backward(aborting: int) -> None:
    with staged_group("cpu") as group:
        model = DistributedDataParallel(nn.Linear(FEATURES, 64), process_group=group)
        attach(model, make_state("diana", group))
        model(batch_of(0)).sum().backward()
        loss = model(batch_of(1)).sum()
        if dist.get_rank() == 0:
            if aborting == 0:
                threading.Timer(0.5, group.abort).start()
            with pytest.raises(sparsewire.Error, match=f"rank {aborting} aborted"):
                loss.backward()
        elif dist.get_rank() == aborting:
            group.abort()
        await_others()


@pytest.mark.parametrize("aborting", [0, 1])
def test_abort_ends_a_backward_that_waits(new_ranks: NewRanks, aborting: int) -> None:
    new_ranks(2).run(aborted_in_backward, aborting)


def destroyed_before_its_model() -> None:
    with cpu_as_device(str(dist.get_rank())):
        group = dist.new_group()
        model = DistributedDataParallel(nn.Linear(FEATURES, 64), process_group=group)
        attach(model, make_state("diana", group))
        before = couriers()
        model(batch_of(0)).sum().backward()
        assert len(couriers()) > len(before)
        dist.destroy_process_group(group)
        assert couriers() == before
        with pytest.raises(sparsewire.Error):
            make_state("diana", group)._submit([SimpleNamespace(buffer=torch.ones(1))])


def test_a_destroyed_group_leaves_no_threads_though_its_model_lives(new_ranks: NewRanks) -> None:
    new_ranks(2).run(destroyed_before_its_model)


def limited_later() -> None:
    with staged_group("cpu", timeout=timedelta(minutes=5)) as group:
        model = DistributedDataParallel(nn.Linear(FEATURES, 64), process_group=group)
        attach(model, make_state("diana", group))
        model(batch_of(0)).sum().backward()
        loss = model(batch_of(1)).sum()
        group.set_timeout(timedelta(seconds=1))
        if dist.get_rank() == 0:
            with pytest.raises(sparsewire.Timeout):
                loss.backward()
        await_others()


def test_a_timeout_that_is_set_later_counts(new_ranks: NewRanks) -> None:
    new_ranks(2).run(limited_later)


def closed_by_its_own_thread() -> None:
    with staged_group("cpu"):
        group = dist.new_group(backend="gloo")
        train(Plain, group, prepare=with_hook(make_state("feedback", group)))
        channel, errors = channel_of(group), []

        def close() -> None:
            try:
                channel.close()
            except RuntimeError as error:
                errors.append(error)

        channel._channel._queue._down.put(close)
        channel._channel._queue._down._thread.join()
        assert not errors


def test_a_courier_may_close_its_channel(new_ranks: NewRanks) -> None:
    new_ranks(2).run(closed_by_its_own_thread)


def in_a_child(backend: str) -> None:
    with staged_group("cpu"):
        group = dist.new_group(backend=backend)
        model = DistributedDataParallel(nn.Linear(FEATURES, 64), process_group=group)
        state = make_state("diana", group)
        attach(model, state)
        model(batch_of(0)).sum().backward()
        child = os.fork()
        if child == 0:
            os._exit(is_refused(state))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        model(batch_of(1)).sum().backward()


def is_refused(state: Any) -> int:
    try:
        state._submit([SimpleNamespace(buffer=torch.ones(1))])
    except sparsewire.Error as error:
        return 0 if "belongs to the parent process" in str(error) else 1
    return 2


@pytest.mark.parametrize("backend", ["sparsewire", "gloo"])
def test_a_forked_child_is_refused(new_ranks: NewRanks, backend: str) -> None:
    new_ranks(2).run(in_a_child, backend)


def with_the_callbacks_of_the_group() -> None:
    with staged_group("cpu") as group:
        model = DistributedDataParallel(nn.Linear(FEATURES, 64), process_group=group)
        attach(model, make_state("diana", group))
        model(batch_of(0)).sum().backward()
        dist.all_reduce(torch.ones(1), group=group, async_op=True).get_future().wait()
        names = [each.name for each in threading.enumerate()]
        assert names.count("sparsewire-callbacks") == 1


def test_a_group_has_one_thread_for_callbacks(new_ranks: NewRanks) -> None:
    new_ranks(2).run(with_the_callbacks_of_the_group)


def malformed() -> None:
    with staged_group("cpu"):
        group = alone()
        model = DistributedDataParallel(nn.Linear(FEATURES, 64), process_group=group)
        attach(model, make_state("diana", group))
        receive = CodeTransfer.receive
        CodeTransfer.receive = lambda self, received: receive(  # type: ignore[method-assign]
            self, [message + b"more" for message in received]
        )
        try:
            with pytest.raises(CompressError, match="4 bytes after its end"):
                model(batch_of(0)).sum().backward()
        finally:
            CodeTransfer.receive = receive  # type: ignore[method-assign]


def test_malformed_messages_are_refused(new_ranks: NewRanks) -> None:
    new_ranks(2).run(malformed)


def holds_what_it_remembers() -> None:
    """The way up writes to residuals of the way down, whose memory may be freed meanwhile."""
    with staged_group("cpu") as group:
        state = make_state("feedback", group, compressor="block-top-k:0.1:16")
        model = DistributedDataParallel(nn.Linear(FEATURES, 1000), process_group=group)
        attach(model, state)
        model(torch.ones(2, FEATURES)).sum().backward()
        held = {address for address, _ in double().held}
        compressed = filter(state.is_compressed, model.module.parameters())
        vectors = [state.residuals.of(each) for each in compressed]
        assert vectors
        assert {vector.data_ptr() for vector in vectors} <= held


def test_memory_of_one_way_is_held_for_the_other(ranks: Ranks) -> None:
    ranks.run(holds_what_it_remembers)
