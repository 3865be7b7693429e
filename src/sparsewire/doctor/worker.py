"""One local rank, started as `python -m sparsewire.doctor.worker`: a line of JSON from rank 0."""

from __future__ import annotations

import os
import sys

from sparsewire.doctor.diagnosis import of_ranks
from sparsewire.errors import Error


def main() -> None:
    """Take part in the diagnosis; rank 0 prints it."""
    try:
        rank, diagnosis = of_ranks(os.environ)
    except (Error, ValueError) as error:
        sys.exit(f"error: {error}")
    if rank == 0:
        print(diagnosis.to_json(), flush=True)


if __name__ == "__main__":
    main()
