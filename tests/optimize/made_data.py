"""Makes small LIBSVM files whose classes a linear model can tell apart, mostly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from sklearn.datasets import dump_svmlight_file


def write_file(
    file: Path,
    rows: int = 300,
    features: int = 40,
    classes: Sequence[float] = (-1, 1),
    density: float = 0.15,
) -> Path:
    """Write rows of `features`, labelled by a noisy score cut into as many parts as classes."""
    random = np.random.default_rng(5)
    shape = (rows, features)
    values = random.normal(size=shape) * (random.random(shape) < density)
    # The largest index fixes the number of features for whoever reads the file.
    values[0, features - 1] = 1.0
    scores = values @ random.normal(size=features) + 0.3 * random.normal(size=rows)
    cuts = np.quantile(scores, np.linspace(0, 1, len(classes) + 1)[1:-1])
    labels = np.asarray(classes)[np.searchsorted(cuts, scores)]
    dump_svmlight_file(csr_array(values), labels, str(file), zero_based=False)
    return file
