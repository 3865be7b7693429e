"""One case on one rank: call the backends in turn, check every result."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from sparsewire.bench.backends import Backend
from sparsewire.bench.calls import Call
from sparsewire.bench.case_data import prepare
from sparsewire.bench.job import Job, Sample
from sparsewire.bench.pacing import Pacing
from sparsewire.bench.patterns import Array
from sparsewire.bench.reference import first_difference
from sparsewire.errors import ExperimentError
from sparsewire.measure.conditions import Usage
from sparsewire.measure.prediction import Prediction
from sparsewire.measure.wire_limit import Share, nonzero_blocks, share


class CaseRun:
    """Holds one rank's data, and `burst` buffers that are reduced."""

    def __init__(self, job: Job, index: int) -> None:
        self.job, self.case = job, job.cases[index]
        self.interface = os.environ["SPARSEWIRE_IFNAME"]
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.data = prepare(job, self.case, self.rank, self.ranks)
        self.buffers = [np.empty_like(self.data.dense) for _ in range(self.case.burst)]

    def share(self) -> Share:
        """What the buffers of all ranks hold. Collective."""
        vector = self.data.dense
        pairs = zip(_densities(nonzero_blocks(vector)), _densities(vector != 0), strict=True)
        return Share(*(share(*pair, 8 * vector.itemsize) for pair in pairs))

    def run(
        self, backends: dict[str, Backend], progress: Callable[[int, int], None]
    ) -> dict[str, Sample]:
        """Alternate the backends burst by burst, so that disturbances hit all of them alike."""
        calls = {
            name: [backend.bind(self.data, buffer) for buffer in self.buffers]
            for name, backend in backends.items()
        }
        samples = {name: Sample(prediction=_told(c[0].prediction)) for name, c in calls.items()}
        warmup = -(-self.case.warmup // self.case.burst)
        bursts = warmup - (-self.case.iterations // self.case.burst)
        pacing = Pacing(list(backends), self.job.case_s)
        for burst in range(bursts):
            progress(burst, bursts)
            # Each order in turn: no backend always follows the same one.
            for name in pacing.running[:: 1 if burst % 2 else -1]:
                sample = Sample() if burst < warmup else samples[name]
                self._burst(name, backends[name], calls[name], sample)
            if burst >= warmup and pacing.is_over(samples):
                break
        return samples

    def _burst(self, name: str, backend: Backend, calls: list[Call], sample: Sample) -> None:
        for call in calls:
            call.prepare()
        dist.barrier()
        before, sent = Usage.now(self.interface), backend.counted_bytes_sent()
        sample.seconds += [_timed(call) for call in calls]
        # A rank still serves others after its own call; the second barrier waits for that work.
        dist.barrier()
        after = Usage.now(self.interface)
        sample.user_cpu_s += after.user_cpu_s - before.user_cpu_s
        sample.system_cpu_s += after.system_cpu_s - before.system_cpu_s
        sample.interface_bytes_sent += after.interface_bytes_sent - before.interface_bytes_sent
        if sent is not None:
            now_sent = backend.counted_bytes_sent() or 0
            sample.counted_bytes_sent = (sample.counted_bytes_sent or 0) + now_sent - sent
        for call in calls:
            self._check(name, call.result(), exact=call.exact)

    def _check(self, name: str, result: Array, *, exact: bool) -> None:
        expected, precision = self.data.expected, self.job.precision
        at = first_difference(result, expected, exact=exact, ranks=self.ranks, precision=precision)
        if at is not None:
            raise ExperimentError(
                f"{name} gave a wrong result on rank {self.rank} for {self.case}: element {at} "
                f"is {result[at]!r}, expected {expected[at]!r}"
            )


def _told(prediction: Prediction | None) -> dict[str, object]:
    if prediction is None:
        return {}
    return {
        "algorithm": prediction.algorithm,
        "chosen": prediction.chosen,
        "predicted_s": prediction.seconds,
        "link": prediction.link,
    }


def _timed(call: Call) -> float:
    start = time.perf_counter()
    call.run()
    return time.perf_counter() - start


def _densities(nonzero: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Share of what is marked: the mean over ranks, and of the union."""
    mask = torch.from_numpy(nonzero.astype(np.uint8))
    mean = mask.double().mean()
    dist.all_reduce(mean)
    dist.all_reduce(mask, dist.ReduceOp.MAX)
    return mean.item() / dist.get_world_size(), mask.double().mean().item()
