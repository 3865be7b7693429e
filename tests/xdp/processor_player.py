"""Workers of a job, played on one processor, as fast as their program can be run.

    python processor_player.py PROGRAM PROCESSOR FIRST LAST WORKERS ROUNDS

Begins with a line of input. Sends what the workers FIRST to LAST have for each round of each slot,
and again until the result comes; prints how often each kind of answer came. Fails where a sum is
wrong.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

from slot_wire import RECALL, RESULT, Slotted, decoded
from xdp_frames import frame
from xdp_kernel import AGGREGATOR, DROP, REDIRECT, worker_end
from xdp_play import JOB, KEY

from sparsewire.xdp import libbpf
from sparsewire.xdp.libbpf import library

BLOCK, SLOTS, HEADERS = 256, 2, 42
OUT_BYTES = 2048


def contributions(number: int, slot: int, workers: int) -> list[Slotted]:
    """Those of all workers to a round; some bring no values."""
    draw = np.random.default_rng((number, slot))
    values = draw.integers(-(1 << 31), 1 << 31, (workers, BLOCK), dtype=np.int64)
    brings = draw.random(workers) < 0.8
    nexts, exponents = draw.integers(1 << 30, size=workers), draw.integers(1, 255, workers)
    return [
        Slotted(
            *(JOB, worker, slot, number, int(nexts[worker]), int(exponents[worker])),
            values=tuple(values[worker].tolist()) if brings[worker] else (),
            block=BLOCK,
            key=KEY,
        )
        for worker in range(workers)
    ]


def sums_of(sent: list[Slotted]) -> tuple[tuple[int, ...], int, int]:
    """Sums, the least next block, and the largest exponent of those who named it."""
    given = [np.array(each.values, dtype=np.int64) for each in sent if each.values]
    sums = tuple(np.sum(given, axis=0).astype(np.uint32).view(np.int32).tolist()) if given else ()
    least = min(each.next for each in sent)
    return sums, least, max(each.exponent for each in sent if each.next == least)


class Program:
    """Runs one frame at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._out = ctypes.create_string_buffer(OUT_BYTES)
        self._options = libbpf.RunOptions(
            size=ctypes.sizeof(libbpf.RunOptions), data_out=ctypes.addressof(self._out), repeat=1
        )
        self._run = library().bpf_prog_test_run_opts

    def run(self, data: bytes) -> bytes | None:
        """The answer, or None."""
        self._options.data_in = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p)
        self._options.data_size_in, self._options.data_size_out = len(data), OUT_BYTES
        self._run(self._descriptor, ctypes.byref(self._options))
        assert self._options.result in (DROP, REDIRECT)
        if self._options.result == DROP:
            return None
        return self._out.raw[HEADERS : self._options.data_size_out]


def play(program: Program, own: range, workers: int, rounds: int) -> Counter[str]:
    """A round of all slots at a time, so that a processor has much to do whenever it has a turn."""
    every = [
        [contributions(number, slot, workers) for slot in range(SLOTS)] for number in range(rounds)
    ]
    frames = [[framed([sent[worker] for worker in own]) for sent in slots] for slots in every]
    print("ready", flush=True)
    sys.stdin.readline()
    seen = Counter[str]()
    for number in range(rounds):
        waiting = set(range(SLOTS))
        while waiting:
            for slot in sorted(waiting):
                answers = [each for data in frames[number][slot] if (each := program.run(data))]
                results = [each for each in answers if each[1] == RESULT]
                assert all(each[1] in (RESULT, RECALL) for each in answers)
                check(results, number, every[number][slot])
                seen.update(results=len(results), recalls=len(answers) - len(results))
                if results:
                    waiting.discard(slot)
    return seen


def framed(sent: list[Slotted]) -> list[bytes]:
    return [frame(worker_end(each.worker), AGGREGATOR, each.encoded()) for each in sent]


def check(results: list[bytes], number: int, sent: list[Slotted]) -> None:
    for answer in results:
        told = decoded(answer, KEY)
        assert told.round == number
        assert (told.values, told.next, told.exponent) == sums_of(sent)


if __name__ == "__main__":
    descriptor, processor, first, last, workers, rounds = map(int, sys.argv[1:])
    os.sched_setaffinity(0, {processor})
    print(json.dumps(play(Program(descriptor), range(first, last + 1), workers, rounds)))
