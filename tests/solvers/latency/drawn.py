"""Random questions to the latency table, over the whole range it answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

PER_PERCENTILE = 50  # limits are made once for each percentile
USUAL = (50.0, 80.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9)


class Question(NamedTuple):
    batch: int
    percentile: float
    ratio: float  # SLO / exec


def questions(count: int, seed: int) -> Iterator[Question]:
    """Batches evenly and by doublings; percentiles even and usual; ratios near the cliff at 2, even and up to 100."""
    random = np.random.default_rng(seed)
    percentile = 50.0
    for index in range(count):
        if index % PER_PERCENTILE == 0:
            percentile = float(random.uniform(50.0, 99.9) if random.random() < 0.5 else random.choice(USUAL))
        batch = int(random.integers(1, 257)) if random.random() < 0.5 else int(2 ** random.uniform(0.0, 8.0))
        near_cliff = 2.0 - (1.0 - percentile / 100.0) * np.exp(random.normal(0.0, 0.4))
        even, long, narrow = (
            random.uniform(1.0, 12.0),
            np.exp(random.uniform(0.0, np.log(100.0))),
            random.uniform(1.5, 3.0),
        )
        yield Question(batch, percentile, max(1.001, float((even, even, long, narrow, near_cliff)[index % 5])))
