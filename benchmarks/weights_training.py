"""What changes from version to version in real trainings, and what sending that costs.

    pip install zstandard==0.25.0 zipnn==0.5.4
    python benchmarks/weights_training.py DATA --record --plot docs/weights.png

A version is the model after one step more. Of each to the next: the share of changed elements, by
how many representable numbers they moved, and bytes a changed element by sparsewire, by what people
use (benchmarks/weights_rivals.py), and by the entropy of the data. DATA is a folder that may hold
tinyshakespeare.txt. All is measured on the way; nothing is stored but figures.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import records
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from weights_models import GPTTraining, RecommenderTraining, Training, Version, policy_loss, text
from weights_rivals import RIVALS, SLOW_RIVALS, Bits, Rival

from sparsewire.tools.experiment.report import new_figure
from sparsewire.weights.versions.coding import Coder
from sparsewire.weights.versions.tensors import Tensor

Measured = dict[str, float]

RATES = (1e-6, 1e-5, 1e-4)
POLICY_RATE, FRESH_STEPS = 1e-6, 20
SLOW_VERSIONS = 4
# A step is a symbol of so many leading bits, and bits below them.
LEADING_BITS = 4


def steps_of(base: Bits, fresh: Bits) -> NDArray[np.int64]:
    """By how many representable numbers each changed element moved, with sign."""
    changed = base != fresh
    return ordered(fresh[changed]) - ordered(base[changed])


def ordered(bits: Bits) -> NDArray[np.int64]:
    """Numbers in the order of the floating-point values; neighbours differ by one."""
    signed = bits.view(f"i{bits.itemsize}").astype(np.int64)
    magnitude = signed & ((1 << (8 * bits.itemsize - 1)) - 1)
    return np.where(signed < 0, -1 - magnitude, signed)


def entropy_bits(elements: int, steps: NDArray[np.int64]) -> float:
    """Of a tensor's change: the positions, were they drawn uniformly, and the steps.

    Steps are counted by their own frequencies. Of large ones the sign, the length and LEADING_BITS
    are, and the bits below at their number: nearly no two are alike, so that frequencies would say
    nothing.
    """
    if not len(steps):
        return 0.0
    share = len(steps) / elements
    lengths = np.frexp(np.abs(steps).astype(float))[1]
    low = np.maximum(lengths - LEADING_BITS, 0)
    symbols = np.sign(steps) * ((np.abs(steps) >> low) + (low << LEADING_BITS))
    counts = np.bincount(symbols - symbols.min())
    positions = elements * entropy(np.array([share, 1 - share]))
    return positions + len(steps) * entropy(counts / len(steps)) + float(low.sum())


def entropy(chances: NDArray[np.float64]) -> float:
    """Of one draw, in bits."""
    some = chances[chances > 0]
    return -float(some @ np.log2(some))


def tensor_of(bits: Bits) -> Tensor:
    return Tensor("BF16" if bits.itemsize == 2 else "F32", bits.shape, bits.view(np.uint8))


def coded_bytes(coder: Coder, base: Bits, fresh: Bits) -> int:
    """Of sparsewire's codes, which are applied to a copy."""
    codes = [each.code for each in coder.encode(tensor_of(base), tensor_of(fresh))]
    copied = base.copy()
    coder.apply(codes, tensor_of(copied))
    assert (copied == fresh).all()
    return sum(map(len, codes))


def sizes_of(coder: Coder, base: Bits, fresh: Bits, rivals: dict[str, Rival]) -> Measured:
    """Bytes of a tensor's change by each way; rivals need not say that there was none."""
    steps = steps_of(base, fresh)
    told = rivals if len(steps) else {}
    return {
        "changed": len(steps),
        "one_step": int((np.abs(steps) == 1).sum()),
        "two_steps": int((np.abs(steps) == 2).sum()),
        "sparsewire": coded_bytes(coder, base, fresh),
        "entropy": entropy_bits(len(base), steps) / 8,
        **{name: told[name](base, fresh) if told else 0 for name in rivals},
    }


def measured(base: Version, fresh: Version, coder: Coder, rivals: dict[str, Rival]) -> Measured:
    """Shares of the changed elements, and bytes of each of them."""
    tensors = [sizes_of(coder, base[name], fresh[name], rivals) for name in base]
    total = {name: sum(each[name] for each in tensors) for name in tensors[0]}
    changed = total["changed"]
    touched = [each for each in tensors if each["changed"]]
    return {
        "changed_share": changed / sum(map(len, base.values())),
        "one_step_share": total["one_step"] / changed,
        "two_steps_share": total["two_steps"] / changed,
        "smallest_share": float(is_smallest(total, rivals)),
        "smallest_tensor_share": sum(is_smallest(own, rivals) for own in touched) / len(touched),
        **{name: total[name] / changed for name in ("sparsewire", "entropy", *rivals)},
    }


def is_smallest(sizes: Measured, rivals: Iterable[str]) -> bool:
    return all(sizes["sparsewire"] <= sizes[name] for name in rivals)


def series(training: Training, versions: int) -> Iterator[Measured]:
    """Train on, and measure each version to the next."""
    slow = set(np.linspace(0, versions - 1, SLOW_VERSIONS).astype(int))
    base = training.bits()
    with Coder(1) as coder:
        for version in range(versions):
            training.step()
            fresh = training.bits()
            yield measured(base, fresh, coder, RIVALS | (SLOW_RIVALS if version in slow else {}))
            base = fresh


def row_of(training: Training, found: list[Measured]) -> records.Row:
    """Medians over the versions, and the extremes of what matters most."""
    own = [each["sparsewire"] for each in found]
    shares = [name for name in found[0] if name.endswith("_share")]
    ways = ("entropy", *RIVALS, *SLOW_RIVALS)
    return {
        "parameters": sum(map(len, training.bits().values())),
        "versions": len(found),
        **{name: median_of(found, name) for name in shares},
        "smallest_share": fmean(each["smallest_share"] for each in found),
        **extremes("changed_share", [each["changed_share"] for each in found]),
        "bytes_per_change": median(own),
        **extremes("bytes_per_change", own),
        **{f"{name}_bytes_per_change": median_of(found, name) for name in ways},
        "zstd_19_versions": sum("zstd_19" in each for each in found),
    }


def median_of(found: list[Measured], name: str) -> float:
    return median(each[name] for each in found if name in each)


def extremes(name: str, values: list[float]) -> Measured:
    return {f"least_{name}": min(values), f"most_{name}": max(values)}


def gpt_rows(data: Path | None, warm_up: int) -> Iterator[tuple[str, Training]]:
    """One GPT that has learned, trained on at each rate, and by a policy gradient."""
    learned = GPTTraining(text(data))
    learned.warm_up(warm_up)
    print(f"gpt: loss {learned.last_loss:.3f} after {warm_up} steps", flush=True)
    for rate in RATES:
        training = copy.deepcopy(learned)
        training.use_rate(rate)
        yield f"gpt/{rate:.0e}", training
    learned.loss = policy_loss
    learned.new_optimizer()
    learned.use_rate(POLICY_RATE)
    for _ in range(FRESH_STEPS):
        learned.step()
    yield "gpt/policy", learned


def recommender_rows(warm_up: int) -> Iterator[tuple[str, Training]]:
    """One recommender that has learned, read in float32 and in bfloat16."""
    learned = RecommenderTraining()
    learned.warm_up(warm_up)
    print(f"recommender: loss {learned.last_loss:.3f} after {warm_up} steps", flush=True)
    for name, dtype in {"float32": torch.float32, "bfloat16": torch.bfloat16}.items():
        training = copy.deepcopy(learned)
        training.dtype = dtype
        yield f"recommender/{name}", training


def plot(found: dict[str, list[list[float]]]) -> Figure:
    """Share changed, and bytes of a changed element, over the versions."""
    figure = new_figure(10, 3.8)
    panels = figure.subplots(1, 2)
    for name, values in found.items():
        for panel, column in zip(panels, zip(*values, strict=True), strict=True):
            panel.plot(column, label=name, linewidth=1)
    panels[0].set(xlabel="version", ylabel="share of elements that changed", yscale="log")
    panels[1].set(xlabel="version", ylabel="bytes a changed element", ylim=0)
    for panel in panels:
        panel.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, help="folder with tinyshakespeare.txt")
    parser.add_argument("--only", choices=MODELS, help="train this model alone")
    parser.add_argument("--versions", type=int, default=200)
    parser.add_argument("--warm-up", type=int, help="steps before the first version")
    parser.add_argument("--record", action="store_true", help="write the record weights_training")
    parser.add_argument("--series", type=Path, help="add shares and bytes by version to this file")
    parser.add_argument("--plot", type=Path, help="draw all that --series holds")
    return parser.parse_args()


MODELS: dict[str, Callable[[argparse.Namespace], Iterator[tuple[str, Training]]]] = {
    "gpt": lambda told: gpt_rows(told.data, told.warm_up or 800),
    "recommender": lambda told: recommender_rows(told.warm_up or 3000),
}


def shown(name: str, row: records.Row, seconds: float) -> str:
    values = (f"  {key} {value:.4g}" for key, value in row.items())
    return "\n".join([f"{name}, {seconds:.0f} s", *values])


def train(model: str, told: argparse.Namespace, known: dict[str, Any]) -> None:
    """Measure the model's rows; `known` gets their series."""
    torch.manual_seed(0)
    for name, training in MODELS[model](told):
        begin = time.perf_counter()
        found = list(series(training, told.versions))
        row = row_of(training, found)
        print(shown(name, row, time.perf_counter() - begin), flush=True)
        known[name] = [[each["changed_share"], each["sparsewire"]] for each in found]
        if told.record:
            records.keep("weights_training", name, row)
        if told.series:
            told.series.write_text(json.dumps(known))


def main() -> None:
    told = arguments()
    torch.set_num_threads(1)
    seen = told.series and told.series.exists()
    known: dict[str, Any] = json.loads(told.series.read_text()) if seen else {}
    for model in [told.only] if told.only else MODELS:
        train(model, told, known)
    if told.plot:
        plot(known).savefig(told.plot, dpi=110)


if __name__ == "__main__":
    main()
