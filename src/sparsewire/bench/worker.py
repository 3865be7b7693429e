"""One rank of a benchmark, started as `python -m sparsewire.bench.worker JOB`: JSON lines out.

In every case it calls the backends in turn, and checks every result.
"""

import hashlib
import os
import sys
import time
from dataclasses import asdict, astuple
from datetime import timedelta
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from sparsewire.bench.backends import Backend, Call, Check, open_backends, ranks_together
from sparsewire.bench.case_data import first_difference, prepare
from sparsewire.bench.groups import groups_of_ranks
from sparsewire.bench.job import Job, Sample
from sparsewire.bench.patterns import Array
from sparsewire.errors import ExperimentError
from sparsewire.experiment.crew import Tell, claim_stdout
from sparsewire.measure.conditions import Usage
from sparsewire.measure.prediction import Prediction
from sparsewire.measure.wire_limit import Share, nonzero_blocks, share

# Less would leave a median to chance.
_MEASURED_MIN = 3

# Nothing that took so many times as long as the fastest can turn out to be the fastest; for one
# call that lasts longer than a disturbance, this is known at once.
_FAR_BEHIND = 2.5
_LONG_S = 0.1


class Pacing:
    """Which backends go on, decided alike on all ranks; without `case_s`, all to the end."""

    def __init__(self, backends: list[str], case_s: float | None) -> None:
        self.running = backends
        self._first = backends[0] if backends else ""
        self._case_s = case_s
        self._start = time.monotonic()
        self._measured = 0

    def is_over(self, samples: dict[str, Sample]) -> bool:
        """Take note of one more measured burst; whether it was the last. Collective."""
        if self._case_s is None:
            return False
        self._measured += 1
        fastest = [min(samples[name].seconds) for name in self.running]
        slowest_rank = torch.tensor([time.monotonic() - self._start, *fastest], dtype=torch.float64)
        dist.all_reduce(slowest_rank, dist.ReduceOp.MAX)
        elapsed, *fastest = slowest_rank.tolist()
        enough = self._measured >= _MEASURED_MIN
        bound = max(_FAR_BEHIND * min(fastest), 0.0 if enough else _LONG_S)
        self.running = [
            name
            for name, seconds in zip(self.running, fastest, strict=True)
            if seconds <= bound or name == self._first
        ]
        return enough and elapsed > self._case_s


class CaseRun:
    """Holds one rank's data, and `burst` buffers that are reduced."""

    def __init__(
        self, job: Job, index: int, together: int, groups: list[range], tell: Tell
    ) -> None:
        self.job, self.case, self.tell = job, job.cases[index], partial(tell, case=index)
        self.interface = os.environ["SPARSEWIRE_IFNAME"]
        self.rank, self.ranks = dist.get_rank(), groups[-1].stop
        self._together = together
        self.data = prepare(job, self.case, self.rank, groups)
        self.buffers = [np.empty_like(self.data.dense) for _ in range(self.case.burst)]

    def run(self, backends: dict[str, Backend]) -> None:
        """Alternate the backends burst by burst, so that disturbances hit all of them alike.

        Tells how far it is, and in the end what was measured. Collective.
        """
        needed = self._share()
        calls = {
            name: [backend.bind(self.data, buffer) for buffer in self.buffers]
            for name, backend in backends.items()
        }
        samples = {name: Sample(prediction=_told(c[0].prediction)) for name, c in calls.items()}
        warmup = -(-self.case.warmup // self.case.burst)
        bursts = warmup - (-self.case.iterations // self.case.burst)
        pacing = Pacing(list(backends), self.job.case_s)
        for burst in range(bursts):
            self.tell("progress", done=burst, total=bursts)
            # Each order in turn: no backend always follows the same one.
            for name in pacing.running[:: 1 if burst % 2 else -1]:
                sample = Sample() if burst < warmup else samples[name]
                self._burst(name, backends[name], calls[name], sample)
            if burst >= warmup and pacing.is_over(samples):
                break
        told = {name: asdict(sample) for name, sample in samples.items()}
        self.tell("measured", share=astuple(needed), samples=told)

    def _share(self) -> Share:
        """What the buffers of all hosts hold, or of all ranks where these speak for themselves."""
        vector, together = self.data.dense, self._together
        blocks = _densities(nonzero_blocks(vector), together)
        elements = _densities(vector != 0, together)
        contributed, united = (
            share(of_blocks, of_elements, 8 * vector.itemsize)
            for of_blocks, of_elements in zip(blocks, elements, strict=True)
        )
        return Share(contributed, united)

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
            self._check(name, call.result(), call.check)

    def _check(self, name: str, result: Array, check: Check) -> None:
        if check is Check.fixed_point and not _is_common(result):
            raise ExperimentError(f"{name} gave ranks different bits for {self.case}")
        at = self._first_wrong(result, check)
        if at is not None:
            raise ExperimentError(
                f"{name} gave a wrong result on rank {self.rank} for {self.case}: element {at} "
                f"is {result[at]!r}, expected {self.data.expected[at]!r}"
            )

    def _first_wrong(self, result: Array, check: Check) -> int | None:
        if check is Check.fixed_point:
            assert self.data.in_fixed_point is not None
            return self.data.in_fixed_point.first_difference(result)
        return first_difference(
            result,
            self.data.expected,
            exact=check is Check.bits,
            ranks=self.ranks,
            precision=self.job.precision,
        )


def _is_common(result: Array) -> bool:
    """Whether all ranks have the same bits. Collective."""
    digest = hashlib.blake2b(result.view(np.uint8).data, digest_size=7).digest()
    number = int.from_bytes(digest, "big")
    extremes = torch.tensor([number, -number])
    dist.all_reduce(extremes, dist.ReduceOp.MAX)
    return bool(extremes.sum() == 0)


def _told(prediction: Prediction | None) -> dict[str, object]:
    if prediction is None:
        return {}
    told = asdict(prediction)
    return {"predicted_s": told.pop("seconds"), **told}


def _timed(call: Call) -> float:
    start = time.perf_counter()
    call.run()
    return time.perf_counter() - start


def _densities(nonzero: npt.NDArray[np.bool_], together: int) -> tuple[float, float]:
    """Share of what is marked: the mean over unions of so many ranks, and of the union of all."""
    mask = torch.from_numpy(nonzero.astype(np.uint8))
    if together > 1:
        host, _ = dist.new_subgroups(together)  # type: ignore[no-untyped-call]
        dist.all_reduce(mask, dist.ReduceOp.MAX, group=host)
    mean = mask.double().mean()
    dist.all_reduce(mean)
    dist.all_reduce(mask, dist.ReduceOp.MAX)
    return mean.item() / dist.get_world_size(), mask.double().mean().item()


def main() -> None:
    """Run all cases of the job given as the only argument."""
    tell = claim_stdout()
    job = Job.from_json(sys.argv[1])
    torch.set_num_threads(1)
    store = _join(job)
    backends = open_backends(job, store)
    together = ranks_together(backends.values(), dist.get_world_size())
    groups = groups_of_ranks(job, together)
    for index in range(len(job.cases)):
        CaseRun(job, index, together, groups, tell).run(backends)
    for backend in backends.values():
        backend.close()
    dist.destroy_process_group()


def _join(job: Job) -> Store:
    """Meet the other ranks and make gloo the default group, which also aligns the ranks."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    timeout = timedelta(seconds=job.timeout)
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(host, port, world_size, rank == 0, timeout)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timeout)
    return store


if __name__ == "__main__":
    main()
