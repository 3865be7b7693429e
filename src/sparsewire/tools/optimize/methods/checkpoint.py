"""A method's state as a file: arrays as they are, everything else as JSON; nothing is pickled."""

from __future__ import annotations

import json
from os import PathLike
from typing import Any

import numpy as np

_REST = "json"


def save(file: str | PathLike[str], state: dict[str, Any]) -> None:
    """Write what `Method.state` gave to an .npz file."""
    arrays = {name: part for name, part in state.items() if isinstance(part, np.ndarray)}
    rest = {name: part for name, part in state.items() if name not in arrays}
    with open(file, "wb") as out:
        np.savez(out, allow_pickle=False, **arrays, **{_REST: np.array(json.dumps(rest))})


def load(file: str | PathLike[str]) -> dict[str, Any]:
    """Read what `save` wrote, bit for bit; raises ValueError where the file is none of these."""
    with np.load(file, allow_pickle=False) as parts:
        if _REST not in parts:
            raise ValueError(f"{file} is no state of a method")
        state: dict[str, Any] = json.loads(str(parts[_REST]))
        return {**state, **{name: parts[name] for name in parts.files if name != _REST}}
