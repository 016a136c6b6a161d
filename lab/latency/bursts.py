"""Makes the table of what bursts cost, which ships in solvers/latency/: the load accepted as a share of Poisson's.

It is exact arithmetic: no seed, the same file each time.

Usage: nice -n 10 python -m lab.latency.bursts [BATCH ...]      (half an hour on one core)
"""

from __future__ import annotations

import math
import sys
import time

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from lab.latency import chain, modulated
from solvers.latency import bursts

CLOSE = 5e-4  # shares of load that are not told apart
LEAST_LOAD = 1e-7
LARGE = 64  # batches from here on take long
LARGE_WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.88, 0.97)
LARGE_RATIOS = (1.1, 1.5, 1.9, 2.0, 2.25, 2.5, 3.0, 4.0, 6.0, 11.0)
MOST_STATES = 1000  # batch x ratio that is computed


def poisson_load(batch: int, ratio: float, missing: float) -> float:
    """Returns the largest load at which this share is late, by halving."""
    low, high = LEAST_LOAD, 0.9995
    while high > low * (1 + CLOSE / 10):
        middle = math.sqrt(low * high) if low < 0.1 else (low + high) / 2
        late = 1.0 - chain.attainment(chain.solve(batch, middle), np.array([ratio]))[0]
        low, high = (middle, high) if late <= missing else (low, middle)
    return low


class Row:
    """The accepted loads of one batch, weight and ratio, for all shares of late requests, the largest first."""

    def __init__(self, batch: int, weight: float, ratio: float) -> None:
        self.batch, self.weight, self.ratio = batch, weight, ratio
        self.known: dict[float, float] = {}  # late shares by load

    def late(self, load: float) -> float:
        if load not in self.known:
            self.known[load] = max(modulated.late_share(self.batch, load, self.weight, self.ratio), 1e-12)
        return self.known[load]

    def accepted(self, missing: float, guess: float, most: float) -> float:
        """Returns the largest load of at most `most`, from below, starting at a guess."""
        guess = min(max(guess, LEAST_LOAD), most)
        while True:
            low = max((load for load, late in self.known.items() if late <= missing), default=0.0)
            high = min((load for load, late in self.known.items() if late > missing and load > low), default=math.inf)
            if high < low * (1 + CLOSE) or low >= most * (1 - CLOSE) or high <= LEAST_LOAD:
                return max(low, LEAST_LOAD)
            self.late(self.next(missing, low, min(high, 0.9995), guess, most))

    def next(self, missing: float, low: float, high: float, guess: float, most: float) -> float:
        """Returns the load to look at next: by false position in logarithms, and now and then by halving."""
        if not self.known or (low == 0.0 and guess < high and guess not in self.known):
            return guess
        if low == 0.0:
            return high / 1.5
        if high not in self.known:
            return min(low * 1.1, most)
        if self.known[high] >= 1.0 or len(self.known) % 3 == 2:
            return math.sqrt(low * high)
        fall = math.log(missing / self.known[low]) / math.log(self.known[high] / self.known[low])
        at = min(max(fall, 0.02), 0.98)
        return float(max(low * (high / low) ** at, low * (1 + CLOSE / 2)))


def looked_at(batch: int) -> tuple[list[int], list[int]]:
    """Returns the places of the weights and ratios that are computed; those of large batches take too long for all."""
    weights, ratios = list(range(1, len(bursts.WEIGHTS))), list(range(len(bursts.RATIOS)))
    if batch < LARGE:
        return weights, ratios
    return [j for j in weights if bursts.WEIGHTS[j] in LARGE_WEIGHTS], [
        k for k in ratios if bursts.RATIOS[k] in LARGE_RATIOS and batch * bursts.RATIOS[k] <= MOST_STATES
    ]


def made(batch: int, smaller: np.ndarray) -> np.ndarray:
    """Returns the shares of one batch; their logarithms are smooth over weights, and straight over ratios.

    At ratios that take too long, shares change with the ratio as those of the next smaller batch do.
    """
    weights, ratios = looked_at(batch)
    found = np.ones((len(bursts.WEIGHTS), len(bursts.RATIOS), len(bursts.MISSING)))
    for k in ratios:
        plain = [poisson_load(batch, bursts.RATIOS[k], missing) for missing in bursts.MISSING]
        before = 0
        for j in weights:
            row = Row(batch, bursts.WEIGHTS[j], bursts.RATIOS[k])
            more = (1.0 - bursts.WEIGHTS[j]) / (1.0 - bursts.WEIGHTS[before])  # of the load; a rough guess
            for m, missing in enumerate(bursts.MISSING):
                load = row.accepted(missing, plain[m] * found[before, k, m] * more, 0.9995)
                found[j, k, m] = load / plain[m]
            before = j
    known = [0, *weights]
    at = -np.log1p(-np.array(bursts.WEIGHTS))
    for k in ratios:
        for m in range(len(bursts.MISSING)):
            found[:, k, m] = np.exp(PchipInterpolator(at[known], np.log(found[known, k, m]))(at))
    at = np.log(bursts.RATIOS)
    for j in range(len(bursts.WEIGHTS)):
        for m in range(len(bursts.MISSING)):
            found[j, :, m] = np.exp(np.interp(at, at[ratios], np.log(found[j, ratios, m])))
    last = ratios[-1]
    found[:, last:, :] = found[:, last : last + 1, :] * smaller[:, last:, :] / smaller[:, last : last + 1, :]
    return found


def encode(shares: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Encodes shares of load by their logarithms, never larger than they are."""
    codes: NDArray[np.uint16] = np.ceil(-np.log(np.minimum(shares, 1.0)) / bursts.DIGIT - 1e-9).astype(np.uint16)
    return codes


def main() -> None:
    """Makes all batches, or only those given, and keeps what is known of the others."""
    began = time.monotonic()
    chosen = [int(batch) for batch in sys.argv[1:]] or bursts.BATCHES
    path = bursts.FOLDER / "bursts.npz"
    shares = np.ones((len(bursts.BATCHES), len(bursts.WEIGHTS), len(bursts.RATIOS), len(bursts.MISSING)))
    if len(chosen) < len(bursts.BATCHES):
        shares = np.exp(bursts.table())
    for batch in chosen:
        place = bursts.BATCHES.index(batch)
        shares[place] = made(batch, shares[max(place - 1, 0)])
        print(f"batch {batch}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        partial = bursts.FOLDER / "bursts.partial.npz"
        np.savez_compressed(partial, losses=encode(np.minimum.accumulate(shares, axis=1)))
        partial.replace(path)


if __name__ == "__main__":
    main()
