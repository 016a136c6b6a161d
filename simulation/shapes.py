"""Load shapes: factors of a service's declared rate, each a pure function of time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import TypeAlias

Shape: TypeAlias = Callable[[float], float]  # seconds since the beginning -> factor of the declared rate

NOISE_SECONDS = 10.0  # the duration of one deviation
MOST_SIGMAS = 3.0


def steady(seconds: float) -> float:
    """Returns a constant load at the declared rate."""
    return 1.0


def wave(low: float, high: float, period_seconds: float, phase: float = 0.0) -> Shape:
    """Returns a daily wave from low to high and back, which begins at its lowest if the phase is 0."""
    middle, swing = (high + low) / 2, (high - low) / 2
    return lambda seconds: middle - swing * math.cos(2 * math.pi * (seconds / period_seconds + phase))


def spike(begins: float, times: float = 4.0, ramp_seconds: float = 30.0, hold_seconds: float = 600.0) -> Shape:
    """Returns HetSev's spike: up within the ramp, held, and down at once."""

    def factor(seconds: float) -> float:
        since = seconds - begins
        if since < 0 or since >= ramp_seconds + hold_seconds:
            return 1.0
        return 1.0 + (times - 1.0) * min(1.0, since / ramp_seconds)

    return factor


def moving(seed: int | str, depth: float = 0.3, period_seconds: float = 1500.0) -> Shape:
    """Returns a smooth load that never repeats: three waves of the service's own, around its declared rate."""
    rng = random.Random(f"moving {seed}")  # noqa: S311 (a simulation, not a secret)
    waves = [(rng.uniform(0.2, 1.0), period_seconds * rng.uniform(0.4, 1.6), rng.random()) for _ in range(3)]
    whole = sum(share for share, _, _ in waves)

    def factor(seconds: float) -> float:
        swing = sum(share * math.sin(2 * math.pi * (seconds / period + phase)) for share, period, phase in waves)
        return 1.0 + depth * swing / whole

    return factor


def noisy(shape: Shape, sigma: float, seed: str) -> Shape:
    """Adds a random deviation that changes every few seconds."""

    def factor(seconds: float) -> float:
        rng = random.Random(f"{seed} {int(seconds // NOISE_SECONDS)}")  # noqa: S311
        deviation = max(-MOST_SIGMAS, min(MOST_SIGMAS, rng.gauss(0.0, 1.0)))
        return max(0.0, shape(seconds) * (1.0 + sigma * deviation))

    return factor if sigma > 0 else shape
