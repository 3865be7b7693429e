"""Bytes that the operators of the top-k hook's precisions send: record precision.

    python benchmarks/precision_bytes.py --record

A million normal numbers, of which 4 in each 512 are kept; bytes are those of a message for each
4 that it holds, and as a share of the dense gradient. The same on any machine.
"""

from __future__ import annotations

import argparse

import numpy as np
import records

from sparsewire.compress import Draws, parse

SPAN, KEPT, ELEMENTS, SEED = 512, 4, 2**20, 1
OPERATORS = {
    "float32": "span-top-k:4:512",
    "int8": "rounded:8:4+span-top-k:4:512",
    "int4": "rounded:4:4+span-top-k:4:512",
    "int2": "rounded:2:4+span-top-k:4:512",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="keep it in record precision")
    given = parser.parse_args()
    x = np.random.default_rng(SEED).standard_normal(ELEMENTS).astype(np.float32)
    for precision, name in OPERATORS.items():
        message = parse(name, ELEMENTS).encode(x, Draws(SEED))
        row = {
            "operator": name,
            "of_a_span": len(message) / (ELEMENTS / SPAN),
            "dense_share": len(message) / x.nbytes,
        }
        print(precision, row)
        if given.record:
            records.keep("precision", precision, row)


if __name__ == "__main__":
    main()
