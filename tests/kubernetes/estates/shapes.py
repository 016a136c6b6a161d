"""Shapes of loads in time, a value a minute with a peak of 1: made-up days, or series that somebody has recorded."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Series: TypeAlias = NDArray[np.float64]
Shape: TypeAlias = Callable[[int], Series]  # of so many minutes

DAY_MINUTES = 1440
LEAST_KNOWN = 0.5  # of the time in which a recorded series has a load, for it to be a shape


def draw_days(random: Random) -> Shape:
    """A day with one peak, less at weekends, and noise of minutes and hours."""
    top, floor, sharp = random.uniform(0, DAY_MINUTES), random.uniform(0.05, 0.4), random.choice((1, 2, 4))
    weekend, noise, seed = random.uniform(0.3, 1.0), random.uniform(0.02, 0.1), random.randrange(2**32)

    def shape(minutes: int) -> Series:
        noises = np.random.default_rng(seed)
        at = np.arange(minutes)
        wave = (0.5 + 0.5 * np.cos(2 * np.pi * (at - top) / DAY_MINUTES)) ** sharp
        days = np.where(at // DAY_MINUTES % 7 >= 5, weekend, 1.0)
        slow = np.repeat(noises.normal(0, noise, minutes // 60 + 1), 60)[:minutes]
        found = (floor + (1 - floor) * wave) * days * np.clip(1 + slow + noises.normal(0, noise, minutes), 0.2, 2.0)
        return np.asarray(found / found.max())

    return shape


def read_shapes(folder: Path) -> list[Shape]:
    """Returns the shapes in a folder: files CSV whose rows begin with a second and a rate, the seconds evenly apart."""
    found = []
    for file in sorted(folder.rglob("*.csv")):
        with file.open(newline="") as text:
            try:
                rows = [(float(row[0]), float(row[1])) for row in csv.reader(text)]
            except (ValueError, IndexError):
                continue
        rates = np.array([rate for _, rate in rows])
        if len(rows) > 1 and (rates > 0).mean() >= LEAST_KNOWN:
            found.append(_recorded(rates, rows[1][0] - rows[0][0]))
    if not found:
        raise SystemExit(f"{folder} has no file CSV whose rows begin with a second and a rate")
    return found


def _recorded(rates: Series, seconds: float) -> Shape:
    def shape(minutes: int) -> Series:
        found = rates[(np.arange(minutes) * 60 // seconds).astype(int) % len(rates)]
        return np.asarray(found / max(found.max(), 1e-9))

    return shape
