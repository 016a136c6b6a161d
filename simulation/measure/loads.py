"""Builds the loads that a simulation knows by name; each is a pure function of service, seed and time."""

from __future__ import annotations

import random
from collections.abc import Iterable

from simulation.limits import LoadName
from simulation.shapes import Shape, moving, noisy, spike, steady, wave

NOISE_SHARE = 0.02
DAY_SECONDS = 86_400.0
NIGHT_SHARE = 0.25  # of the declared rate, which is a daily wave's highest
PHASE_SPREAD_DAYS = 0.05  # services are at their lowest at most this long before or after noon of the first day
SPIKE_EVERY_SECONDS, FIRST_SPIKE_SECONDS = 3600.0, 900.0


def make_load(load: LoadName, services: Iterable[str], hours: float, seed: int) -> dict[str, Shape]:
    """Returns the shape of each service, with noise of its own."""
    names = sorted(services)
    match load:
        case "moving":
            shapes = {name: moving(f"{seed} {name}") for name in names}
        case "wave":
            shapes = {name: wave(NIGHT_SHARE, 1.0, DAY_SECONDS, _phase(seed, name)) for name in names}
        case "spike":
            shapes = dict.fromkeys(names, steady) | _spikes(names, hours, seed)
        case "steady":
            shapes = dict.fromkeys(names, steady)
    return {name: noisy(shape, NOISE_SHARE, f"{seed} {name}") for name, shape in shapes.items()}


def _phase(seed: int, name: str) -> float:
    return random.Random(f"wave {seed} {name}").uniform(-PHASE_SPREAD_DAYS, PHASE_SPREAD_DAYS)  # noqa: S311


def _spikes(names: list[str], hours: float, seed: int) -> dict[str, Shape]:
    """Gives another service every hour four times its load for ten minutes, in turn, as the seed orders them."""
    order = random.Random(f"spike {seed}").sample(names, len(names))  # noqa: S311
    count = 1 + int(max(0.0, hours * 3600 - FIRST_SPIKE_SECONDS) // SPIKE_EVERY_SECONDS)
    begins = [FIRST_SPIKE_SECONDS + SPIKE_EVERY_SECONDS * number for number in range(count)]
    turns = {name: begins[place :: len(order)] for place, name in enumerate(order)}
    return {name: _highest([spike(at) for at in own]) for name, own in turns.items() if own}


def _highest(shapes: list[Shape]) -> Shape:
    """Returns the shape that is at every moment the highest of these."""
    return lambda seconds: max(shape(seconds) for shape in shapes)
