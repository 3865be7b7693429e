"""One local rank: `python -m sparsewire.optimize.train.worker REQUEST`; JSON lines out."""

from __future__ import annotations

import sys

from sparsewire.errors import Error
from sparsewire.optimize.train.report import Item, to_json
from sparsewire.optimize.train.request import Request
from sparsewire.optimize.train.run import run_rank


def main() -> None:
    """Run the request given as the only argument; rank 0 tells how it goes."""
    try:
        run_rank(Request.from_json(sys.argv[1]), _tell)
    except (Error, ValueError) as error:
        sys.exit(f"error: {error}")


def _tell(item: Item) -> None:
    print(to_json(item), flush=True)


if __name__ == "__main__":
    main()
