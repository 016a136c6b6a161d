"""Made-up models whose slowdowns beside others are known exactly."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np

from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation

SENSITIVITY = {"a": 0.1, "b": 0.5, "c": 0.9, "d": 0.3}
PRESSURE = {
    ("a", 20): 0.2, ("a", 50): 0.4, ("b", 20): 0.3, ("b", 50): 0.7,
    ("c", 20): 0.5, ("c", 50): 1.0, ("d", 20): 0.1, ("d", 50): 0.2,
}  # fmt: skip


def declared_slowdown(model: str, neighbours: tuple[Neighbour, ...]) -> float:
    """The rule of a right plan."""
    return 1 + SENSITIVITY[model] * sum(PRESSURE[each.model, each.sm_percent] for each in neighbours)


def declared_pairs(noise: float = 0.0, samples: int = 1) -> list[SlowdownObservation]:
    draw = np.random.default_rng(0)
    return [
        SlowdownObservation(
            SharedRun(model, 50, (beside := (Neighbour(other, percent),))),
            declared_slowdown(model, *[beside]) * float(np.exp(noise * draw.standard_normal())),
            samples,
        )
        for model, other, percent in product(SENSITIVITY, SENSITIVITY, (20, 50))
    ]


def saturating_mixes() -> list[SlowdownObservation]:
    """Mixes of up to four of six models at three SM%; slowdowns grow faster than pressure at 100 %, slower at 50 %."""
    models = "uvwxyz"
    sensitivities = dict(zip(models, (0.2, 0.4, 0.6, 0.8, 1.0, 1.2), strict=True))
    pressures = dict(zip(models, (0.9, 0.3, 0.7, 0.2, 0.5, 1.0), strict=True))
    exponent = {14: 1.0, 50: 0.6, 100: 1.8}
    return [
        SlowdownObservation(
            SharedRun(mix[0], level, tuple(Neighbour(each, level) for each in sorted(mix[1:]))),
            1 + (sensitivities[mix[0]] * sum(pressures[each] for each in mix[1:])) ** exponent[level],
        )
        for size in (2, 3, 4)
        for mix in list(permutations(models, size))[::5]
        for level in exponent
    ]
