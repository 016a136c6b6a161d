"""Sums up observations: the ratio of each shape, remembered until the shape shows another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from app.control.observe.drift.minutes import Observation
from app.control.observe.drift.tuning import DriftTuning


@dataclass(frozen=True, slots=True)
class ShapeEvidence:
    """The measured execution time of a shape, over the predicted."""

    ratio: float
    error: float  # standard error of the ratio
    minutes: int
    at: datetime


def gather_evidence(
    observations: Sequence[Observation], before: Mapping[str, ShapeEvidence], settings: DriftTuning
) -> dict[str, ShapeEvidence]:
    """Returns the evidence by shape. A shape without recent observations keeps its earlier evidence.

    Slower execution than in the profile counts however full the batches were. Faster execution counts only with full
    batches and without neighbours: an idle neighbour slows less than plans must assume.
    """
    by_shape: dict[str, list[Observation]] = {}
    for observation in observations:
        if observation.exec_ratio is not None:
            by_shape.setdefault(observation.shape, []).append(observation)
    found = dict(before)
    for shape, of_shape in by_shape.items():
        proving = [
            observation for observation in of_shape if observation.alone and observation.fill >= settings.full_share
        ]
        for counted in (proving, of_shape):
            evidence = _evidence_of(counted, settings)
            if evidence is None or (evidence.ratio < 1 and counted is not proving):
                continue
            found[shape] = evidence
            break
    return found


def late_share(observations: Iterable[Observation], since: datetime) -> tuple[float, int]:
    """Returns the share of minutes that missed the SLO, and the number of minutes."""
    late = [
        observation.late for observation in observations if observation.late is not None and observation.at >= since
    ]
    return (sum(late) / len(late) if late else 0.0), len(late)


def agreed_ratio(ratios: Sequence[float], settings: DriftTuning) -> float | None:
    """Returns the median ratio; None for too few ratios."""
    return median(ratios) if len(ratios) >= settings.fewest else None


def _evidence_of(observations: Sequence[Observation], settings: DriftTuning) -> ShapeEvidence | None:
    """Returns the median over the instances' medians, so that a single broken instance does not count for the rest."""
    if len(observations) < settings.fewest:
        return None
    by_instance: dict[str, list[float]] = {}
    for observation in observations:
        if observation.exec_ratio is not None:
            by_instance.setdefault(observation.instance, []).append(observation.exec_ratio)
    middle = median(median(ratios) for ratios in by_instance.values())
    scatter = 1.4826 * median(abs(ratio - middle) for ratios in by_instance.values() for ratio in ratios)
    # With few observations the scatter itself is uncertain.
    error = scatter / (len(observations) - 2) ** 0.5
    return ShapeEvidence(middle, error, len(observations), max(observation.at for observation in observations))
