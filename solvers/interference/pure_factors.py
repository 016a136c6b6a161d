"""Two factors of slowdowns in the one form that measurements can tell, named `compute` and `bandwidth`.

A slowdown stays the same where pressures are mixed and sensitivities unmixed. The form chosen is the sparsest: of all
neighbours the two that differ most in kind press on one factor alone each, so all pressures lie between theirs, and a
sensitivity is what such a pure neighbour does to a model. Nothing gets negative by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solvers.interference.candidate import Floats

COMPUTE, BANDWIDTH = "compute", "bandwidth"
FACTORS = (COMPUTE, BANDWIDTH)
FAINT_SHARE = 0.1  # of the largest pressure, below which the kind of a neighbour is noise
LEAST_ANGLE = 0.01  # between the two pure neighbours, below which they are of one kind
UNLIKE_GROWTH = 1.1  # ratio of two factors' growths with SM%, below which growth names neither


@dataclass(frozen=True, slots=True)
class FactorMatrices:
    """Sensitivities [model, factor] and pressures [source, factor]; a source is a neighbour at an SM%."""

    sensitivities: Floats
    pressures: Floats

    @property
    def effects(self) -> Floats:
        """Returns what each source adds to each model's slowdown by each factor: [model, source, factor]."""
        return self.sensitivities[:, None] * self.pressures[None]


def purify(mixed: FactorMatrices, sources: Sequence[tuple[str, int]]) -> FactorMatrices | None:
    """Returns the two factors in their sparsest form, compute first; None where all neighbours are of one kind."""
    pressures = mixed.pressures * mixed.sensitivities.mean(0)  # in slowdowns of the average model
    strength = pressures.sum(1)
    angles = np.arctan2(pressures[:, 1], pressures[:, 0])
    clear = np.flatnonzero(strength >= FAINT_SHARE * strength.max(initial=0.0))
    if not len(clear):
        return None
    first, last = clear[angles[clear].argmin()], clear[angles[clear].argmax()]
    if angles[last] - angles[first] < LEAST_ANGLE:
        return None
    pure = mixed.pressures[[first, last]]
    shares = np.maximum(mixed.pressures @ np.linalg.inv(pure), 0.0)
    shares[first], shares[last] = (1.0, 0.0), (0.0, 1.0)  # but for rounding
    found = FactorMatrices(mixed.sensitivities @ pure.T, shares)
    order = _name(found, sources)
    return FactorMatrices(found.sensitivities[:, order], found.pressures[:, order])


def _name(found: FactorMatrices, sources: Sequence[tuple[str, int]]) -> list[int]:
    """Returns which factor is compute and which is bandwidth.

    SMs are divided among neighbours, so more of them compute more; bandwidth is soon used up by few. Without neighbours
    at several SM%, or where both grow alike, compute is the factor that slows more, as if it were the only one.
    """
    growths = _growths(found.pressures, sources)
    if max(growths) >= UNLIKE_GROWTH * min(growths):
        return [0, 1] if growths[0] >= growths[1] else [1, 0]
    slowed = found.effects.sum((0, 1))
    return [0, 1] if slowed[0] >= slowed[1] else [1, 0]


def _growths(pressures: Floats, sources: Sequence[tuple[str, int]]) -> list[float]:
    """Returns how many times as large each factor's pressures are at a neighbour's most SM% as at its least."""
    percents: dict[str, list[tuple[int, int]]] = {}
    for row, (source, percent) in enumerate(sources):
        percents.setdefault(source, []).append((percent, row))
    several = [sorted(rows) for rows in percents.values() if len(rows) > 1]
    least, most = (pressures[[rows[end][1] for rows in several]].sum(0) for end in (0, -1))
    return [float(high / low) if low > 0 else 1.0 for low, high in zip(least, most, strict=True)]
