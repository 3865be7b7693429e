"""Whether the method that `sparsewire optimize --choose` names is the fastest: record choose.

    python benchmarks/choices.py DATA --record

DATA has LIBSVM's mushrooms and phishing; the other sets come with scikit-learn. 20 simulated
workers, so that rounds and modelled times are the same on any machine. One run each.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import records

WORKERS = 20
SETS: dict[str, tuple[str, str]] = {
    "breast_cancer": ("breast_cancer", "--link 1mbit --downlink 100mbit"),
    "wine": ("wine", "--link 1mbit"),
    "diabetes, least squares": ("diabetes", "--model least-squares --link 1mbit"),
    "diabetes, least squares, `--no-normalize`": (
        "diabetes",
        "--model least-squares --no-normalize --link 1mbit",
    ),
    "digits, `--split label --l2 0.01 --top 8`": (
        "digits",
        "--split label --l2 0.01 --top 8 --link 10mbit",
    ),
    "mushrooms": ("mushrooms", "--link 10mbit"),
    "mushrooms, `--split label --top 5`": ("mushrooms", "--split label --top 5 --link 1mbit"),
    "phishing, `--top 5`": ("phishing", "--top 5 --link 1mbit"),
}
DEADLINE_S = 1200


def choice(data: Path, name: str, options: str) -> dict[str, Any]:
    file = data / name
    source = str(file) if file.exists() else name
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "choice.json")
        command = ["sparsewire", "optimize", source, "--choose", "--workers", str(WORKERS)]
        command += [*shlex.split(options), "--json", str(result)]
        subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
        found: dict[str, Any] = json.loads(result.read_text())
    return found


def row_of(found: dict[str, Any]) -> records.Row:
    ranking = found["ranking"]
    shares = [
        each["measured"]["rounds"] / each["predicted"]["rounds"]
        for each in found["choices"]
        if each["measured"]
    ]
    link = found["setting"]["link"]
    up, down = (f"{link[key] / 1e6:g} Mbit/s" for key in ("up_bits_s", "down_bits_s"))
    least, most = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
    return {
        "link": up if up == down else f"{up} up, {down} down",
        "predicted first is fastest": "yes" if ranking["best_held"] else "no",
        "pairs in order": f"{ranking['pairs_in_order']} of {ranking['pairs']}",
        "rounds": f"{least}%" if least == most else f"{least} to {most}%",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--name", choices=SETS, action="append", help="by default all")
    parser.add_argument("--record", action="store_true", help="keep it in record choose")
    given = parser.parse_args()
    for name in given.name or SETS:
        row = row_of(choice(given.data, *SETS[name]))
        print(name, row, flush=True)
        if given.record:
            records.keep("choose", name, row, workers=WORKERS)


if __name__ == "__main__":
    main()
