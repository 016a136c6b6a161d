"""Measures models beside each other on one GPU, and finds the pressure and sensitivity that explain their slowdowns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulation.profiling.alone import SPREAD_SHARE
from simulation.truth.fitting import LoadKey
from simulation.truth.physics import Physics, RunningLoad
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation
from solvers.interference.profile_factors import pressure_and_sensitivity
from solvers.interference.pure_factors import FACTORS

ROUNDS = 40
KNOTS = (10.0, 20.0, 40.0, 100.0)  # SM% at which pressure is found; linear between them
SIZES = (2, 3, 2, 4, 3, 5)  # of groups, in turn
LEAST_SHARE, MOST_SHARE = 10, 80  # of the SMs, of one of them
MOST_PRESSURE = 1.0


@dataclass(frozen=True, slots=True)
class MeasuredGroup:
    """A group that ran together: the slowdown of each against alone."""

    members: tuple[RunningLoad, ...]
    slow: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NeighbourEffects:
    """The effects of a model on its neighbours, by factor and SM%, and theirs on it."""

    pressure: Mapping[str, tuple[tuple[float, float], ...]]
    sensitivity: Mapping[str, float]
    most_sensitivity: Mapping[str, float]  # covers the wanted share of what was measured
    groups: int


def measure_groups(
    physics: Physics, batches: Mapping[LoadKey, Sequence[int]], groups: int, random: np.random.Generator
) -> list[MeasuredGroup]:
    """Measures each model of one kind of GPU in so many groups with others, within the SMs there are."""
    keys = sorted(batches)
    found = []
    for key in keys:
        for number in range(groups if len(keys) > 1 else 0):
            others = [other for other in keys if other != key]
            count = min(len(others), SIZES[number % len(SIZES)] - 1)
            group = [key, *(others[place] for place in random.choice(len(others), count, replace=False))]
            shares = _shares(len(group), random)
            members = tuple(
                RunningLoad(member, int(random.choice(batches[member])), share)
                for member, share in zip(group, shares, strict=True)
            )
            found.append(_measure_group(physics, members))
    return found


def _measure_group(physics: Physics, members: tuple[RunningLoad, ...]) -> MeasuredGroup:
    """Lets a group run, and then each of it alone at the clock that the group had.

    At its power limit a GPU lowers its clock. Plans count that by watts, so that it is no slowdown by neighbours.
    """
    together = physics.together(members)
    clock_mhz = together.clock_share * physics.gpu(members[0].key[-1]).top_clock_mhz
    alone = [physics.together((member,), clock_mhz).times_ms[0] for member in members]
    return MeasuredGroup(members, tuple(now / then for now, then in zip(together.times_ms, alone, strict=True)))


def explain(
    groups: Sequence[MeasuredGroup], keys: Sequence[LoadKey], quantile: float | None
) -> dict[LoadKey, NeighbourEffects]:
    """Fits slowdown = 1 + sensitivity x sum of pressures. `quantile` is of the groups that the most covers."""
    number = {key: place for place, key in enumerate(keys)}
    mine, rows, slow = _table(groups, number)
    sensitive, pressures = _find_two_factors(groups, keys) or _fit_one_factor(mine, rows, slow, len(keys))
    pressures = np.maximum.accumulate(pressures, axis=1)
    scale = np.maximum(pressures.max((0, 1)), 1e-9)  # a pressure is at most 1
    pressures, sensitive = np.minimum(pressures / scale, MOST_PRESSURE), sensitive * scale
    names = FACTORS[: len(scale)]
    most = sensitive
    if quantile is not None and len(slow):
        beside = rows @ pressures.reshape(-1, len(scale))
        most = sensitive * _covering((sensitive[mine] * beside).sum(1), slow, quantile)
    return {
        key: NeighbourEffects(
            {
                name: tuple((at, round(float(value), 4)) for at, value in zip(KNOTS, by_knot, strict=True))
                for name, by_knot in zip(names, pressures[place].T, strict=True)
            },
            {name: round(float(value), 4) for name, value in zip(names, sensitive[place], strict=True)},
            {name: round(float(value), 4) for name, value in zip(names, most[place], strict=True)},
            int((mine == place).sum()),
        )
        for key, place in number.items()
    }


def _fit_one_factor(
    mine: NDArray[np.int64], rows: NDArray[np.float64], slow: NDArray[np.float64], models: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns sensitivities [model, factor] and pressures [model, knot, factor] of one factor."""
    pressures = np.full(len(KNOTS) * models, 0.3)
    sensitive = np.full(models, 0.3)
    heavy = 1 / (1 + slow)  # what counts is the error as a share of the time
    for _ in range(ROUNDS if len(slow) else 0):
        beside = rows @ pressures
        for place in range(models):
            here = mine == place
            weight = float((beside * heavy**2)[here] @ beside[here])
            if weight > 0:
                sensitive[place] = max(1e-4, float((beside * heavy**2)[here] @ slow[here]) / weight)
        pressures = _non_negative(rows * (sensitive[mine] * heavy)[:, None], slow * heavy, pressures)
    return sensitive[:, None], pressures.reshape(models, len(KNOTS), 1)


def _find_two_factors(
    groups: Sequence[MeasuredGroup], keys: Sequence[LoadKey]
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Returns the same of two factors, as a campaign finds them; None where measurements are not sure of two."""
    observations = [
        SlowdownObservation(
            SharedRun(
                "/".join(member.key),
                round(member.sm_percent),
                tuple(
                    Neighbour("/".join(other.key), round(other.sm_percent))
                    for other_place, other in enumerate(group.members)
                    if other_place != place
                ),
            ),
            group.slow[place],
        )
        for group in groups
        for place, member in enumerate(group.members)
    ]
    found = pressure_and_sensitivity(observations, [round(knot) for knot in KNOTS])
    effects = [found.get("/".join(key)) for key in keys]
    if not all(each and each.sensitivity.keys() == each.pressure.keys() == set(FACTORS) for each in effects):
        return None
    known = [each for each in effects if each]
    sensitive = np.array([[each.sensitivity[name].mean for name in FACTORS] for each in known])
    at_knots = [[each.pressures_at(knot) for knot in KNOTS] for each in known]
    return sensitive, np.array([[[at[name] for name in FACTORS] for at in each] for each in at_knots])


def _shares(count: int, random: np.random.Generator) -> list[int]:
    """Returns whole shares that fit on one GPU; most of it is used."""
    free = 100 - LEAST_SHARE * count
    parts = random.dirichlet(np.ones(count)) * free * random.uniform(0.6, 1.0)
    return [min(MOST_SHARE, LEAST_SHARE + int(part)) for part in parts]


def _table(
    groups: Sequence[MeasuredGroup], number: Mapping[LoadKey, int]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Returns one row for each model in each group: which it is, its neighbours' weights, and its slowdown less 1."""
    mine, rows, slow = [], [], []
    for group in groups:
        for place, member in enumerate(group.members):
            row = np.zeros((len(number), len(KNOTS)))
            for other_place, other in enumerate(group.members):
                if other_place != place:
                    row[number[other.key]] += _weights(other.sm_percent)
            mine.append(number[member.key])
            rows.append(row.ravel())
            slow.append(group.slow[place] - 1)
    return np.array(mine, dtype=np.int64), np.array(rows), np.array(slow)


def _weights(percent: float) -> NDArray[np.float64]:
    """Returns how much of each knot's value counts at this share."""
    found: NDArray[np.float64] = np.array(
        [np.interp(percent, KNOTS, [float(knot == other) for other in KNOTS]) for knot in KNOTS]
    )
    return found


def _non_negative(
    rows: NDArray[np.float64], wanted: NDArray[np.float64], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Improves non-negative weights by multiplication, as for non-negative matrix factors."""
    weights = np.maximum(start, 1e-6)
    above, below = rows.T @ np.maximum(wanted, 0), rows.T @ rows
    for _ in range(20):
        weights = weights * above / np.maximum(below @ weights, 1e-12)
    return np.maximum(weights, 1e-6)


def _covering(expected: NDArray[np.float64], slow: NDArray[np.float64], quantile: float) -> float:
    """Returns the factor on expected slowdowns that covers this share of all that were measured, but for noise.

    It is one factor for a kind of GPU: of a single model too few are measured to know a quantile.
    """
    noise = SPREAD_SHARE * (1 + slow)
    needed = (slow - noise) / np.maximum(expected, 1e-9)
    return max(1.0, float(np.quantile(needed, quantile)))
