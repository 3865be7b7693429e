"""Threads of ours work on the tensor's device, and use no other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
import torch
from cuda_runtime import FakeStream, runtime
from device_double import cpu_as_device

from sparsewire.device import accelerator
from sparsewire.device.accelerator import Cuda
from sparsewire.torch.calls.futures import Callbacks, Future
from sparsewire.torch.calls.plain_call import CopiedBack
from sparsewire.torch.calls.work import Together
from sparsewire.torch.device.device_queue import Courier

T = TypeVar("T")
SECOND = torch.device("cuda", 1)


def in_a_thread(work: Callable[[], T]) -> T:
    """What a new thread returns, which begins on device 0."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join(20)
    return results[0]


def test_a_stream_leaves_no_context_on_device_0() -> None:
    with runtime() as cuda:
        stream = FakeStream(SECOND, 7)

        def work() -> tuple[int, FakeStream, int, FakeStream]:
            inside = Cuda().run(stream, lambda: (cuda.current(), cuda.current_stream()))
            return *inside, cuda.current(), cuda.current_stream(SECOND)

        assert in_a_thread(work) == (1, stream, 0, FakeStream(SECOND))
        assert cuda.contexts == {1}


def test_a_stream_of_the_threads_own_device() -> None:
    with runtime() as cuda:
        cuda.exchange(1)
        former = FakeStream(SECOND, 3)
        cuda.set_stream(former)
        Cuda().enqueue(FakeStream(SECOND, 7), lambda: None)
        assert (cuda.current(), cuda.current_stream()) == (1, former)
        assert cuda.contexts == {1}


def test_callbacks_work_on_the_device_of_their_future() -> None:
    devices, callbacks = [torch.device("cpu", 0)], Callbacks(1)
    with cpu_as_device() as double:

        def device(*_: Any) -> Any:
            return getattr(double.thread, "device", None)

        future = Future.of(device, callbacks, devices)
        assert future.wait() == devices[0]
        assert future.then(device).wait() == devices[0]
        assert Future.of(device, callbacks).wait() is None
    callbacks.close()


def test_futures_end_on_their_device_beside_the_program() -> None:
    """Torch records an event where a future ends: a context is made, and waiters wait for it."""
    devices, callbacks = [torch.device("cpu", 0)], Callbacks(1)
    places: list[Any] = []
    with cpu_as_device() as double:

        class Noting(Future[Any]):
            def set_result(self, result: Any) -> None:
                places.append((getattr(double.thread, "device", None), double.current(SECOND)))
                super().set_result(result)

        for compute in (lambda: 1, lambda: 1 / 0):
            future = Noting.of(compute, callbacks, devices)
            future._ended.wait(20)
    callbacks.close()
    assert [device for device, _ in places] == 2 * devices
    assert double.caller not in [stream for _, stream in places]


def test_a_thread_has_one_stream_beside_the_programs() -> None:
    with runtime() as cuda, patch.object(Cuda, "make_stream", lambda *_: FakeStream(SECOND, 7)):
        cuda_itself = Cuda()

        def work() -> tuple[int, FakeStream, int]:
            with cuda_itself.aside(SECOND):
                inside = cuda.current(), cuda.current_stream()
            return *inside, cuda.current()

        assert in_a_thread(work) == (1, FakeStream(SECOND, 7), 0)
        assert cuda.contexts == {1}


def test_futures_of_other_backends_follow_the_devices_of_their_tensors() -> None:
    callbacks, tensor, devices = Callbacks(1), torch.ones(2), [torch.device("cpu", 0)]
    with cpu_as_device() as double, patch.object(double, "future_devices", lambda _: devices):
        for tensors in ([tensor], [[tensor, tensor]]):
            future = Together([], tensors, callbacks).get_future()
            assert future._devices == devices
            future.wait()
    callbacks.close()


def test_later_waiters_see_what_the_first_one_copies_back() -> None:
    """They may work on other streams."""
    target, memory, callbacks = torch.zeros(2), torch.ones(2), Callbacks(1)
    with cpu_as_device() as double:
        work = CopiedBack(None, target, [(target, memory)], callbacks)

        def wait_on_another_stream() -> Any:
            double.thread.stream = double.make_stream()
            return work.wait()

        assert in_a_thread(wait_on_another_stream)
        assert target.eq(0).all()
        work.wait()
        assert target.eq(1).all()
    callbacks.close()


class FakeLibrary:
    """CUDA's runtime as a library, in which threads begin in mode 0, the global one."""

    def __init__(self) -> None:
        self.thread = threading.local()

    def cudaThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
        former = getattr(self.thread, "mode", 0)
        self.thread.mode, mode._obj.value = mode._obj.value, former
        return 0


@pytest.mark.parametrize("is_used", [True, False])
def test_a_thread_ignores_what_others_capture(is_used: bool) -> None:
    library = FakeLibrary()
    with (
        patch.object(torch.cuda, "is_initialized", lambda: is_used),
        patch.object(accelerator, "_cuda_runtime", lambda: library),
    ):
        Cuda().ignore_captures()
        assert getattr(library.thread, "mode", 0) == (1 if is_used else 0)
    with patch.object(torch.cuda, "is_initialized", lambda: True):
        Cuda().ignore_captures()  # Without such a library.


def test_threads_of_ours_ignore_what_others_capture() -> None:
    courier = Courier("ours")
    with cpu_as_device() as double:
        courier.put(lambda: None)
        courier.close()
        assert double.ignoring == {"ours"}
