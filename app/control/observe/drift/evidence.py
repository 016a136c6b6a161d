"""What observations add up to: for each shape the ratio that it has shown, remembered until it shows another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from app.control.observe.drift.minutes import Observation
from app.control.observe.drift.tuning import DriftTuning


@dataclass(frozen=True, slots=True)
class ShapeEvidence:
    """What one shape has shown of its execution time."""

    ratio: float
    error: float  # standard error of the ratio
    minutes: int
    at: datetime


def gather_evidence(
    observations: Sequence[Observation], before: Mapping[str, ShapeEvidence], settings: DriftTuning
) -> dict[str, ShapeEvidence]:
    """By shape. One that was not seen of late shows what it showed before.

    Slower than the profile counts however full batches were. Quicker counts only with full batches and without
    neighbours: an idle neighbour presses less than plans must assume.
    """
    by_shape: dict[str, list[Observation]] = {}
    for one in observations:
        if one.exec_ratio is not None:
            by_shape.setdefault(one.shape, []).append(one)
    found = dict(before)
    for shape, seen in by_shape.items():
        proving = [one for one in seen if one.alone and one.fill >= settings.full_share]
        for counted in (proving, seen):
            told = _evidence_of(counted, settings)
            if told is None or (told.ratio < 1 and counted is not proving):
                continue
            found[shape] = told
            break
    return found


def late_share(observations: Iterable[Observation], since: datetime) -> tuple[float, int]:
    """The share of minutes that missed what was promised, and of how many."""
    told = [one.late for one in observations if one.late is not None and one.at >= since]
    return (sum(told) / len(told) if told else 0.0), len(told)


def agreed_ratio(ratios: Sequence[float], settings: DriftTuning) -> float | None:
    """What ratios agree on; None of too few."""
    return median(ratios) if len(ratios) >= settings.fewest else None


def _evidence_of(seen: Sequence[Observation], settings: DriftTuning) -> ShapeEvidence | None:
    """The median over instances of the median of each: one broken instance accuses itself only."""
    if len(seen) < settings.fewest:
        return None
    by_instance: dict[str, list[float]] = {}
    for one in seen:
        if one.exec_ratio is not None:
            by_instance.setdefault(one.instance, []).append(one.exec_ratio)
    middle = median(median(ratios) for ratios in by_instance.values())
    scatter = 1.4826 * median(abs(ratio - middle) for ratios in by_instance.values() for ratio in ratios)
    # A scatter that few show is itself not known well.
    error = scatter / (len(seen) - 2) ** 0.5
    return ShapeEvidence(middle, error, len(seen), max(one.at for one in seen))
