"""Turns the filters of a profile's regions into what plans believe of it, which changes only outside its own band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log, sqrt
from typing import TypeAlias

from app.control.domain.corrected import factor_at
from app.control.domain.snapshot import Correction, LatencyFactor
from app.control.observe.drift.tuning import DriftTuning
from solvers.learning.fit import CurveFit
from solvers.learning.region import Region
from solvers.planning.judge.readings import value_at

# batch -> SM% of a profile's points -> logarithm of its planned time over its mean
Places: TypeAlias = Mapping[int, Mapping[int, float]]


def find_wanted_latency(fit: CurveFit, places: Places, late: float, settings: DriftTuning) -> tuple[LatencyFactor, ...]:
    """Returns the factors at the profile's points and wherever its copies were measured; none if all are 1."""
    measured = {region.sm_percent for region in fit.regions}
    found = []
    for batch, margins in sorted(places.items()):
        for sm_percent in sorted({*margins, *(sm for sm in measured if min(margins) < sm < max(margins))}):
            mean, _ = fit.at(batch, sm_percent)
            margin = find_margin(places, batch, sm_percent)
            kept = margin * fit.margin_share(batch, sm_percent)
            lowest = find_lowest(margin, settings)
            factor = round_to_quanta(min(max(exp(mean + kept) + late, lowest), settings.highest), settings)
            found.append(LatencyFactor(batch, sm_percent, factor))
    return tuple(found) if any(point.factor != 1 for point in found) else ()


def find_margin(places: Places, batch: int, sm_percent: int) -> float:
    """Returns the logarithm of planned time over mean there; 0 for a batch that the profile does not know."""
    return value_at(tuple(sorted(places[batch].items())), sm_percent) if batch in places else 0.0


def find_lowest(margin: float, settings: DriftTuning) -> float:
    """Returns the lowest factor of a planned time: measurements may take the whole margin of a draft away."""
    return min(settings.lowest, exp(-margin))


def find_wanted_sensitivity(fit: CurveFit, settings: DriftTuning) -> float:
    """Returns the factor of the neighbour whose slowdown exceeds the declared one most."""
    slowest = max(fit.neighbours.values(), default=0.0)
    return round_to_quanta(exp(slowest), settings)


def has_left_band(regions: Sequence[Region], believed: Correction, wanted: Correction, settings: DriftTuning) -> bool:
    """Returns whether some region is planned differently by more than the dead band and what its noise explains."""
    return any(abs(_measure_excess(region, believed, wanted)) > _band(region, settings) for region in regions)


def is_slower(regions: Sequence[Region], believed: Correction, wanted: Correction, settings: DriftTuning) -> bool:
    """Returns whether some region is slower than planned by more than the dead band and what its noise explains."""
    return any(_measure_excess(region, believed, wanted) > _band(region, settings) for region in regions)


def _measure_excess(region: Region, believed: Correction, wanted: Correction) -> float:
    return find_planned_log(region, wanted) - find_planned_log(region, believed)


def _band(region: Region, settings: DriftTuning) -> float:
    return log(1 + settings.dead_band) + region.mean_deviations(settings.band_deviations) * sqrt(region.variance)


def differs(believed: Correction, wanted: Correction, settings: DriftTuning) -> bool:
    """Returns whether the curves differ anywhere by more than the dead band, however sure that is."""
    points = {(point.batch, point.sm_percent) for point in (*believed.latency, *wanted.latency)}
    return any(
        abs(log(factor_at(believed, *point) / factor_at(wanted, *point))) > log(1 + settings.dead_band)
        for point in points
    )


def find_planned_log(region: Region, correction: Correction) -> float:
    """Returns the logarithm of planned over declared in the region, among its neighbours."""
    impact = sum(impact for _, impact in region.impacts)
    felt = (1 + correction.sensitivity_factor * impact) / (1 + impact)
    return log(factor_at(correction, region.batch, region.sm_percent) * felt)


def keep_within_bounds(factor: float, settings: DriftTuning) -> float:
    """Returns the factor in whole quanta, within bounds."""
    return round_to_quanta(min(max(factor, settings.lowest), settings.highest), settings)


def round_to_quanta(factor: float, settings: DriftTuning) -> float:
    """Rounds the factor to whole quanta."""
    return round(round(factor / settings.quantum) * settings.quantum, 6)
