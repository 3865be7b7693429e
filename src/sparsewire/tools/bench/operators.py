"""The speed of compression operators: how long a core takes to encode and decode, with checks."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress import Compressor, Draws, parse
from sparsewire.errors import ExperimentError
from sparsewire.tools.experiment.progress import Move, bars
from sparsewire.tools.experiment.report import Column, Report, number, table

T = TypeVar("T")
Vector = NDArray[np.float32]

OPERATORS = (
    *("identity", "rand-k:0.01", "rand-k:0.1", "rand-k:0.5", "block-random-k:0.01"),
    *("bernoulli:0.1:1", "bernoulli:0.1:256"),
    *("ternary", "ternary:inf", "ternary:2:512", "ternary:inf:512"),
    *("dithering:4", "dithering:4:1:512", "dithering:4:3:512", "dithering:127:inf:512", "qsgd:7"),
    *("natural", "natural-dithering:7", "natural-dithering:7:inf:512"),
    *("top-k:0.001", "top-k:0.01", "top-k:0.1", "span-top-k:0.01", "threshold:2.5"),
    *("block-top-k:0.01", "block-top-k-ratio:0.01", "block-threshold:17"),
    *("sign", "sign:512", "low-rank:2", "low-rank:4"),
    *("natural+rand-k:0.1", "natural+top-k:0.01", "dithering:4+natural"),
    *("rounded:4:4+span-top-k:4", "0.5*ternary:inf|0.5*natural"),
    *("centroids:64+span-top-k:64:4096", "dct-top-k:64", "fp4", "visible"),
)
"""Every operator, with settings for long vectors."""


@dataclass(frozen=True)
class Speed:
    """One operator on one vector; bytes are of the uncompressed float32 vector.

    Seconds are processor time; `..._elapsed_s` are time on the clock.
    """

    operator: str
    elements: int
    omega: float | None
    """None where the operator is biased; then `contraction` says how good it is."""
    contraction: float
    bits_per_element: float
    encode_s: float
    """Median, as `decode_s`."""
    decode_s: float
    encode_bytes_per_s: float
    decode_bytes_per_s: float
    encode_elapsed_s: float
    """Median on the clock: longer than `encode_s` where others use the machine."""
    decode_elapsed_s: float
    encode_times_s: list[float]
    decode_times_s: list[float]


def gaussian(elements: int, seed: int) -> Vector:
    """Standard normal values, shape (elements,)."""
    return np.random.default_rng(seed).standard_normal(elements, dtype=np.float32)


def measure_operators(
    operators: Sequence[str], x: Vector, repetitions: int, move: Move
) -> list[Speed]:
    """Measure the operators of these names one after the other.

    Raises CompressError for a name that means none, and ExperimentError for a wrong result.
    """
    compressors = [parse(name, x.size) for name in operators]
    speeds = []
    for done, (name, compressor) in enumerate(zip(operators, compressors, strict=True)):
        move("measuring", done, len(operators), name)
        speeds.append(_measure(name, compressor, x, repetitions))
    return speeds


def _measure(name: str, compressor: Compressor, x: Vector, repetitions: int) -> Speed:
    # The first call finds cold caches and no memory, and its result is checked.
    payload = compressor.encode(x, Draws(0))
    if compressor.decode(payload).tobytes() != compressor.compress(x, Draws(0)).tobytes():
        raise ExperimentError(f"{name} decodes to another vector than it compressed")
    draws, size = Draws(1), 0
    encodes, decodes = [], []
    for _ in range(repetitions):
        payload, seconds = _timed(lambda: compressor.encode(x, draws))
        encodes.append(seconds)
        decodes.append(_timed(partial(compressor.decode, payload))[1])
        size += len(payload)
    encode_s, encode_elapsed_s = np.median(encodes, axis=0).tolist()
    decode_s, decode_elapsed_s = np.median(decodes, axis=0).tolist()
    return Speed(
        operator=name,
        elements=x.size,
        omega=None if compressor.is_biased else compressor.omega,
        contraction=compressor.contraction,
        bits_per_element=8 * size / repetitions / x.size,
        encode_s=encode_s,
        decode_s=decode_s,
        encode_bytes_per_s=x.nbytes / encode_s,
        decode_bytes_per_s=x.nbytes / decode_s,
        encode_elapsed_s=encode_elapsed_s,
        decode_elapsed_s=decode_elapsed_s,
        encode_times_s=[processor_s for processor_s, _ in encodes],
        decode_times_s=[processor_s for processor_s, _ in decodes],
    )


def _timed(call: Callable[[], T]) -> tuple[T, tuple[float, float]]:
    """A call's result, its processor time in all threads, and its time on the clock."""
    processor, clock = time.process_time(), time.perf_counter()
    result = call()
    return result, (time.process_time() - processor, time.perf_counter() - clock)


def _quality(speed: Speed) -> str:
    if speed.omega is not None:
        return f"omega {speed.omega:.4g}"
    return f"a {speed.contraction:.2g}" if speed.contraction else "-"


_COLUMNS = (
    Column[Speed]("operator", lambda speed: speed.operator, is_text=True),
    Column[Speed]("quality", _quality),
    Column[Speed]("bits per\nelement", lambda speed: f"{speed.bits_per_element:.3f}"),
    Column[Speed]("encode\nGB/s", lambda speed: number(speed.encode_bytes_per_s, 1e-9)),
    Column[Speed]("decode\nGB/s", lambda speed: number(speed.decode_bytes_per_s, 1e-9)),
    Column[Speed]("elapsed\nms", lambda speed: number(speed.encode_elapsed_s, 1e3)),
    Column[Speed]("elapsed\nms", lambda speed: number(speed.decode_elapsed_s, 1e3)),
)


def operators_report(names: Sequence[str], elements: int, repetitions: int, seed: int) -> Report:
    """Measure operators on a vector of so many elements: a row for each, and all numbers."""
    with bars() as move:
        speeds = measure_operators(names, gaussian(elements, seed), repetitions, move)
    title = f"{elements:,} elements of float32; GB/s of a core, elapsed ms of encode and decode"
    results = [asdict(speed) for speed in speeds]
    record = {"benchmark": "operators", "seed": seed, "results": results}
    return Report([table(_COLUMNS, speeds, title)], record)
