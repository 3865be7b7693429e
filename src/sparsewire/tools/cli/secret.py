"""The secret of an aggregator, as its commands are given it."""

import os
from pathlib import Path


def read_secret(file: Path | None) -> bytes:
    """The secret in `file`, else SPARSEWIRE_SECRET; raises ValueError for an empty file."""
    if file is None:
        return os.environ.get("SPARSEWIRE_SECRET", "").encode()
    secret = file.read_bytes().strip()
    if not secret:
        raise ValueError(f"{file} is empty: write the secret into it")
    return secret
