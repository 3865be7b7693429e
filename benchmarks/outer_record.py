"""Rows of the record `outer`: what `sparsewire bench outer` leaves, for benchmarks/records.py."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

Row = dict[str, Any]


def of_outer(found: dict[str, Any]) -> dict[str, Row]:
    """The setting; each method, and it at each link; and each trial of the tuning."""
    rows = {"setting": setting_row(found)}
    for finding in found["outer"]:
        rows[finding["method"]] = method_row(finding)
        for link, reached in finding["reached"].items():
            rows[f"{finding['method']}/{link}"] = link_row(reached)
    return {**rows, "best": best_row(found["outer"]), **dict(tuning_rows(found["tuning"]))}


def setting_row(found: dict[str, Any]) -> Row:
    setting = dict(found["setting"])
    links = ", ".join(setting.pop("links"))
    return {**setting, "links": links, "parameters": found["outer"][0]["parameters"]}


def method_row(finding: Row) -> Row:
    """Shares of losses are of the first method's with the same seed; bytes of whole trainings."""
    kept = ("rate", "outer_rate", "fewer_bytes", "alone_s")
    longer = finding["longer"]
    return {
        **{name: finding[name] for name in kept},
        **outcome_row(finding["whole"]),
        **({f"longer_{name}": own for name, own in outcome_row(longer).items()} if longer else {}),
        "up_bytes": finding["up"],
        "down_bytes": finding["down"],
        "most_up_bytes": finding["most_up"],
        "over_formula_share": finding["over_formula"],
    }


def outcome_row(outcome: Row) -> Row:
    shares = outcome["loss_shares"]
    kept = ("steps", "seeds", "final_loss", "target_step")
    return {
        **{name: outcome[name] for name in kept},
        "final_loss_share": fmean(shares) - 1,
        "least_final_loss_share": min(shares) - 1,
        "most_final_loss_share": max(shares) - 1,
    }


def link_row(reached: Row) -> Row:
    kept = ("step_s", "training_s", "target_s")
    return {**{name: reached[name] for name in kept}, "speedup": reached["speed_up"]}


def best_row(outer: list[Row]) -> Row:
    """At each link, the preset that comes first to the first method's loss, and how much sooner."""
    row: Row = {}
    for link in outer[0]["reached"]:
        ups = {own["method"]: own["reached"][link]["speed_up"] for own in outer[1:]}
        known = {name: up for name, up in ups.items() if up and not name.startswith("ddp")}
        if known:
            best = max(known, key=known.__getitem__)
            row |= {f"{link}_method": best, f"{link}_speedup": known[best]}
    return row


def tuning_rows(trials: list[Row]) -> Iterator[tuple[str, Row]]:
    for trial in trials:
        rates = [f"{trial[name]:g}" for name in ("rate", "outer_rate") if trial[name] is not None]
        row = {"held_out_loss": trial["held_out_loss"], "is_chosen": trial["is_chosen"]}
        yield f"tuning/{trial['method']}/{'/'.join(rates)}", row
