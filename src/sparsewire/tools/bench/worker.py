"""One rank of a benchmark: `python -m sparsewire.tools.bench.worker JOB`, which prints JSON lines.

In every case it calls the backends in turn, and checks every result.
"""

import hashlib
import os
import sys
import time
from dataclasses import asdict, astuple, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from sparsewire.errors import ExperimentError
from sparsewire.tools.bench.backends import Backend, Call, Check, opened, ranks_together
from sparsewire.tools.bench.case_data import CaseData, first_difference, prepare
from sparsewire.tools.bench.groups import groups_of_ranks
from sparsewire.tools.bench.job import Job, Sample
from sparsewire.tools.bench.patterns import Array
from sparsewire.tools.bench.ranks import Ranks
from sparsewire.tools.experiment.crew import Tell, claim_stdout
from sparsewire.tools.measure.conditions import Usage
from sparsewire.tools.measure.prediction import Prediction
from sparsewire.tools.measure.wire_limit import Share, nonzero_blocks, share

# Less would leave a median to chance.
_MEASURED_MIN = 3

# Nothing that took so many times as long as the fastest can turn out to be the fastest; for one
# call that lasts longer than a disturbance, this is known at once.
_FAR_BEHIND = 2.5
_LONG_S = 0.1


class Pacing:
    """Decides which backends go on, alike on all ranks; without `case_s` all run to the end."""

    def __init__(self, backends: list[str], case_s: float | None, ranks: Ranks) -> None:
        self.running = backends
        self._ranks = ranks
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
        of_ranks = self._ranks.gather([time.monotonic() - self._start, *fastest])
        elapsed, *fastest = of_ranks.max(axis=0).tolist()
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
        self, job: Job, index: int, ranks: Ranks, together: int, groups: list[range], tell: Tell
    ) -> None:
        self.job, self.case, self.tell = job, job.cases[index], partial(tell, case=index)
        self.interface = os.environ["SPARSEWIRE_IFNAME"]
        self.ranks, self._together = ranks, together
        data = prepare(job, self.case, ranks.rank, groups)
        self.data = replace(data, named=_named_by_all(data, ranks))
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
        pacing = Pacing(list(backends), self.job.case_s, self.ranks)
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
        """Non-zeros in all hosts' buffers, or in all ranks' if ranks send their own."""
        vector, together = self.data.dense, self._together
        blocks = _densities(nonzero_blocks(vector), together, self.ranks)
        elements = _densities(vector != 0, together, self.ranks)
        contributed, united = (
            share(of_blocks, of_elements, 8 * vector.itemsize)
            for of_blocks, of_elements in zip(blocks, elements, strict=True)
        )
        return Share(contributed, united)

    def _burst(self, name: str, backend: Backend, calls: list[Call], sample: Sample) -> None:
        for call in calls:
            call.prepare()
        self.ranks.barrier()
        before, sent = Usage.now(self.interface), backend.counted_bytes_sent()
        sample.seconds += [_timed(call) for call in calls]
        # A rank still serves others after its own call; the second barrier waits for that work.
        self.ranks.barrier()
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
        if check is Check.fixed_point and not _is_common(result, self.ranks):
            raise ExperimentError(f"{name} gave ranks different bits for {self.case}")
        at = self._first_wrong(result, check)
        if at is not None:
            raise ExperimentError(
                f"{name} gave a wrong result on rank {self.ranks.rank} for {self.case}: element "
                f"{at} is {result[at]!r}, expected {self.data.expected[at]!r}"
            )

    def _first_wrong(self, result: Array, check: Check) -> int | None:
        if check is Check.fixed_point:
            assert self.data.in_fixed_point is not None
            return self.data.in_fixed_point.first_difference(result)
        return first_difference(
            result,
            self.data.expected,
            exact=check is Check.bits,
            ranks=self.ranks.size,
            precision=self.job.precision,
        )


def _named_by_all(data: CaseData, ranks: Ranks) -> list[int]:
    """Positions that the vector of each rank names; none of dense input. Collective."""
    if data.vector is None:
        return []
    return [int(count) for count in ranks.gather([data.vector.nnz])[:, 0]]


def _is_common(result: Array, ranks: Ranks) -> bool:
    """Whether all ranks have the same bits. Collective."""
    digest = hashlib.blake2b(result.view(np.uint8).data).digest()
    return bool(ranks.agree(digest, lambda said: bytes([len(set(said)) == 1]))[0])


def _told(prediction: Prediction | None) -> dict[str, object]:
    if prediction is None:
        return {}
    told = asdict(prediction)
    return {"predicted_s": told.pop("seconds"), **told}


def _timed(call: Call) -> float:
    start = time.perf_counter()
    call.run()
    return time.perf_counter() - start


def _densities(nonzero: npt.NDArray[np.bool_], together: int, ranks: Ranks) -> tuple[float, float]:
    """Share of what is marked: the mean over unions of so many ranks, and of the union of all."""

    def decide(said: list[bytes]) -> bytes:
        masks = np.stack([np.frombuffer(mask, np.uint8) for mask in said])
        unions = np.bitwise_or.reduceat(masks, range(0, ranks.size, together))
        mean = float(np.mean([marked(union) for union in unions]))
        union = marked(np.bitwise_or.reduce(unions))
        return np.array([mean, union]).tobytes()

    def marked(mask: npt.NDArray[np.uint8]) -> float:
        return float(np.unpackbits(mask, count=len(nonzero)).mean())

    mean, union = np.frombuffer(ranks.agree(np.packbits(nonzero).tobytes(), decide))
    return float(mean), float(union)


def main() -> None:
    """Run all cases of the job given as the only argument."""
    tell = claim_stdout()
    job = Job.from_json(sys.argv[1])
    ranks = Ranks.meet(job.timeout)
    with opened(job) as backends:
        together = ranks_together(backends.values(), ranks.size)
        groups = groups_of_ranks(job, together, ranks)
        for index in range(len(job.cases)):
            CaseRun(job, index, ranks, together, groups, tell).run(backends)


if __name__ == "__main__":
    main()
