"""One local rank: `python -m sparsewire.optimize.train.worker TASK`; events out."""

from __future__ import annotations

import json
import sys

from sparsewire.errors import Error
from sparsewire.experiment.crew import claim_stdout
from sparsewire.optimize.train.run import run_rank
from sparsewire.optimize.train.training import Training


def main() -> None:
    """Run the task given as the only argument; rank 0 tells how it goes."""
    try:
        run_rank(Training(**json.loads(sys.argv[1])), claim_stdout())
    except (Error, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
