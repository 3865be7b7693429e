"""Records: what was measured, compact enough to be committed; README and docs quote nothing else.

A record is `records/NAME.json`: the command, the commit, the conditions, and `figures`, which has
rows by name and in each row values by name. Names end in their unit: `_s` seconds, `_bytes`,
`_bytes_per_s`, `_share` of one; all else is a plain number.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from outer_record import of_outer

FOLDER = Path(__file__).parent / "records"
LARGEST_BYTES = 100_000
DIGITS = 5

Row = dict[str, Any]


def processor(record: Row) -> str:
    """What a record, or each of its parts, was measured on."""
    made = record.get("parts", {}).values() or [record]
    found = dict.fromkeys(
        ", ".join(filter(None, (own["conditions"].get(key) for key in ("cpu", "simd"))))
        for own in made
    )
    return "; ".join(found)


def load(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """All records by name."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}


def collect(result: Path, folder: Path = FOLDER) -> None:
    """Make the record of what a command of benchmarks/run.sh left in this file.

    What is called NAME+PART.json becomes a part of record NAME: its rows take the place of those
    that they are called like, and the others stay.
    """
    found = json.loads(result.read_text())
    made = {
        "command": result.with_suffix(".command").read_text().strip(),
        "commit": commit(),
        "conditions": {**found.get("conditions", {}), **network_of(found)},
    }
    name, _, part = result.stem.partition("+")
    file, figures = folder / f"{name}.json", figures_of(found)
    write(file, with_part(file, part, made, figures) if part else {**made, "figures": figures})


def with_part(file: Path, part: str, made: Row, figures: dict[str, Row]) -> Row:
    """The record in this file, if there is one, with a part that was measured anew.

    Each part has a command, a commit and conditions of its own; the record's are those of the
    parts that nobody has measured since the record came in parts.
    """
    old = json.loads(file.read_text()) if file.exists() else {"figures": {}}
    kept = {row: own for row, own in old["figures"].items() if row.split("/")[0] != part}
    heads = {key: old.get(key, "each part has its own") for key in ("command", "commit")}
    return {
        **heads,
        "conditions": old.get("conditions", {}),
        "parts": {**old.get("parts", {}), part: made},
        "figures": {**kept, **figures},
    }


def network_of(found: dict[str, Any]) -> Row:
    """Where aggregators take part, what tensors went through, and how they were added."""
    cluster = found.get("cluster", {})
    if not cluster.get("transport"):
        return {}
    told = {**cluster, "arithmetic": found["job"]["arithmetic"]}
    return {"network": {name: value for name, value in told.items() if value is not None}}


def commit() -> str:
    """That of the working tree, with "-dirty" where the product was changed since."""
    head = git("rev-parse", "--short", "HEAD").strip()
    return f"{head}-dirty" if git("status", "--porcelain", "src", "core", "bindings") else head


def git(*arguments: str) -> str:
    command = ["git", "-C", str(FOLDER.parents[1]), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def write(file: Path, record: dict[str, Any]) -> None:
    """Write a record, a line for each row of its figures."""
    rows = ",\n".join(
        f"  {json.dumps(name, ensure_ascii=False)}: {json.dumps(rounded(row), ensure_ascii=False)}"
        for name, row in record["figures"].items()
    )
    head = json.dumps({**record, "figures": None}, indent=1, ensure_ascii=False)
    text = head.replace('"figures": null', '"figures": {\n' + rows + "\n }") + "\n"
    if len(text) > LARGEST_BYTES:
        raise ValueError(f"{file.name} would have {len(text)} bytes: leave something out")
    # Whoever reads records meanwhile finds the old one, or the new one.
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def keep(name: str, row: str, figures: Row, **more: Any) -> None:
    """Add a row to a record that a program of its own makes, or replace it."""
    from sparsewire.tools.measure.conditions import conditions

    file = FOLDER / f"{name}.json"
    rows = json.loads(file.read_text())["figures"] if file.exists() else {}
    # Where somebody keeps data says nothing.
    options = ["DATA" if Path(each).is_dir() else each for each in sys.argv[1:]]
    told = ["python", "benchmarks/" + Path(sys.argv[0]).name, *options]
    rows[row] = {"command": shlex.join(told), **figures}
    write(
        file,
        {
            "command": "each row has its own",
            "commit": commit(),
            "conditions": {**conditions(), **more},
            "figures": rows,
        },
    )


def rounded(row: Row) -> Row:
    """Without what was not measured, and without digits that repeat in no second run."""
    return {
        name: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
        for name, value in row.items()
        if value is not None
    }


def figures_of(found: dict[str, Any]) -> dict[str, Row]:
    """The rows of whichever benchmark has left this."""
    for mark, rows in KINDS.items():
        if mark in found:
            return rows(found)
    raise ValueError(f"no benchmark leaves records with {', '.join(found)}")


def of_cases(found: dict[str, Any]) -> dict[str, Row]:
    """Of `sparsewire bench all_reduce`, or of `bench operators`."""
    if found["benchmark"] == "operators":
        return {result["operator"]: operator_row(result) for result in found["results"]}
    names = case_names(found["results"])
    return dict(zip(names, map(case_row, found["results"]), strict=True))


def case_names(results: list[dict[str, Any]]) -> Iterable[str]:
    """Size, pattern and density; size and pattern only where several were measured."""
    several = {key for key in ("bytes", "pattern") if len({r[key] for r in results}) > 1}
    for result in results:
        parts = [size(result["bytes"])] if "bytes" in several else []
        parts += [result["pattern"]] if "pattern" in several else []
        yield "/".join([*parts, f"{result['density']:g}"])


def case_row(result: dict[str, Any]) -> Row:
    """One case; `limit_speedup` is what the wire allows against a dense ring."""
    times = {f"{name}_s": backend["median_s"] for name, backend in result["backends"].items()}
    ours = result["backends"].get("sparsewire") or result["backends"]["sparsewire-torch"]
    limit = ours["limit_s"]
    return {
        **times,
        "p99_s": ours["p99_s"],
        "speedup": ours["speedup_over_gloo"],
        "speedup_over_gloo_sparse": ours["speedup_over_gloo_sparse"],
        "torch_ratio": ratio(times.get("sparsewire-torch_s"), times.get("sparsewire_s")),
        "torch_speedup": ratio(times.get("gloo_s"), times.get("sparsewire-torch_s")),
        "limit_s": limit,
        "limit_speedup": ratio(result["gloo_limit_s"], limit),
        "wire_share": ratio(limit, ours["median_s"]),
        "sent_bytes": ours["interface_bytes_sent_per_rank"] or ours["counted_bytes_sent_per_rank"],
        "cpu_s": ours["user_cpu_s"] + ours["system_cpu_s"] + ours["aggregator_cpu_s"],
        "chosen": ours.get("chosen"),
    }


def ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over and under else None


def operator_row(result: dict[str, Any]) -> Row:
    keep = ("omega", "contraction", "bits_per_element", "encode_bytes_per_s", "decode_bytes_per_s")
    return {name: result[name] for name in (*keep, "encode_elapsed_s", "decode_elapsed_s")}


def of_grid(found: dict[str, Any]) -> dict[str, Row]:
    """Of `sparsewire bench grid`: how often auto was close to the best, and every cell."""
    cells = found["cells"]
    rows: dict[str, Row] = {"all": {"close_share": found["share_close"], "cells": len(cells)}}
    for cell in cells:
        times = {f"{name}_s": seconds for name, seconds in cell["seconds"].items()}
        rows[f"{size(cell['bytes'])}/{cell['density']:g}"] = {
            **times,
            "auto_s": cell["auto_s"],
            "chosen": cell["chosen"],
            "over_best": cell["ratio"],
        }
    return rows


def of_training(found: dict[str, Any]) -> dict[str, Row]:
    """Of `sparsewire bench training`: rows by task and kind of method."""
    return {
        f"{finding['task']}/{finding['method'].split('/')[0]}": {
            "method": finding["method"],
            "final_loss": finding["final_loss"],
            "seeds": len(finding["seed_ratios"]),
            "final_loss_share": finding["loss_ratio"] - 1,
            "least_final_loss_share": min(finding["seed_ratios"]) - 1,
            "most_final_loss_share": max(finding["seed_ratios"]) - 1,
            "held_out_loss": finding["held_out_loss"],
            "held_out_loss_share": finding["held_out_ratio"] - 1,
            "sent_bytes": finding["sent"],
            "fewer_bytes": finding["fewer_bytes"],
            "step_s": finding["step_s"],
            "speedup": finding["speed_up"],
        }
        for finding in found["findings"]
    }


def of_demo(found: dict[str, Any]) -> dict[str, Row]:
    """Of `sparsewire demo`: a step over each backend, and how the losses compare."""
    steps = {f"{run['backend']}_s": run["step_s"] for run in found["runs"]}
    return {
        "step": {
            **steps,
            "speedup": found["comparison"]["speed_up"],
            "loss_difference": found["comparison"]["loss_difference"],
        }
    }


def of_transfers(found: dict[str, Any]) -> dict[str, Row]:
    """Of `sparsewire demo --what weights`: a row for each transfer, and how they compare."""
    names = ("version_s", "version_bytes", "idle_s", "pause_s", "changed_share", "elapsed_s")
    rewards = ("first_reward", "last_reward")
    rows = {
        run["transfer"]: {name: run[name] for name in (*names, *rewards, "parameters")}
        for run in found["transfers"]
    }
    against = found["against_whole"]
    compared = {
        "speedup": against["speed_up"],
        "fewer_bytes": against["fewer_bytes"],
        "versions": found["setting"]["versions"],
        "is_exact": against["is_exact"],
    }
    return {**rows, "against": compared}


def of_workloads(found: dict[str, Any]) -> dict[str, Row]:
    """Of `sparsewire bench workload`: each workload's gradients, and a row for each method."""
    rows: dict[str, Row] = {}
    for each in found["workloads"]:
        name, density = each["name"], each["density"]
        methods = {method["method"].split("/")[0]: method for method in each["methods"]}
        rows[name] = {
            "parameters": each["parameters"],
            **{f"{kind}_share": share for kind, share in density.items()},
            **against_the_best(methods),
        }
        rows |= {f"{name}/{kind}": method_row(method) for kind, method in methods.items()}
    return rows


def method_row(method: Row) -> Row:
    """`alone_s` is a step without communication; `fastest_s` and `slowest_s` are of the measured
    steps, `last_loss` of the last of them. Losses of whole trainings are means over the seeds; a
    share of one seed is that of the first method's loss with the same seed."""
    seconds, losses = method["steps"]["seconds"], method["steps"]["losses"]
    return {
        "step_s": method["step_s"],
        "fastest_s": min(seconds),
        "slowest_s": max(seconds),
        "steps": len(seconds),
        "alone_s": method["steps"]["alone_s"],
        "sent_bytes": method["sent_bytes"],
        "speedup": method["speedup"],
        "least_speedup": method["least_speedup"],
        "most_speedup": method["most_speedup"],
        "last_loss": losses[-1] if losses else None,
        **(loss_row(**method["losses"]) if method["losses"] else {}),
    }


def loss_row(steps: int, final: list[float], over_first: list[float]) -> Row:
    return {
        "trained_steps": steps,
        "seeds": len(final),
        "final_loss": fmean(final),
        "final_loss_share": fmean(over_first) - 1,
        "least_final_loss_share": min(over_first) - 1,
        "most_final_loss_share": max(over_first) - 1,
    }


def against_the_best(methods: dict[str, Row]) -> Row:
    """How many times as fast as gloo sparsewire is with sparse tensors, and each at its best."""

    def step_s(*names: str) -> float | None:
        return min((methods[name]["step_s"] for name in names if name in methods), default=None)

    gloo, ours = ("gloo", "gloo-sparse"), ("sparsewire", "sparsewire-sparse")
    return {
        "sparse_speedup": ratio(step_s(gloo[1]), step_s(ours[1])),
        "best_speedup": ratio(step_s(*gloo), step_s(*ours)),
    }


# What tells the kinds of records apart that the commands write.
KINDS: dict[str, Callable[[dict[str, Any]], dict[str, Row]]] = {
    "cells": of_grid,
    "results": of_cases,
    "findings": of_training,
    "workloads": of_workloads,
    "comparison": of_demo,
    "transfers": of_transfers,
    "outer": of_outer,
}


def size(count: int) -> str:
    return f"{count // 1024}KiB" if count < 10_000_000 else f"{count / 1e6:.0f}MB"
