"""The correction that learning is compared with: one factor for a profile, the ratio of its slowest shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from statistics import median
from typing import NamedTuple

from app.control.domain.snapshot import LatencyFactor
from app.control.observe.drift.correct import ProfileCorrection, ProfileEvidence
from app.control.observe.drift.minutes import Observation
from app.control.observe.drift.tuning import DriftTuning

MOST_STEP = 0.15  # of the current factor
STEP = timedelta(seconds=300)
WINDOW = timedelta(seconds=1800)
REMEMBERED = timedelta(days=7)


class ShapeRatio(NamedTuple):
    """The measured execution time of a shape, over the predicted."""

    ratio: float
    error: float
    at: datetime


class ScalarCorrection:
    """A law of correction. It keeps the ratios of shapes itself."""

    def __init__(self) -> None:
        self._shapes: dict[str, dict[str, ShapeRatio]] = {}

    def __call__(
        self, before: ProfileCorrection, evidence: ProfileEvidence, now: datetime, settings: DriftTuning
    ) -> ProfileCorrection:
        mark = evidence.window[-1].profile if evidence.window else before.profile
        window = [each for each in evidence.window if each.profile == mark and each.at > now - WINDOW]
        known = {
            shape: found for shape, found in self._shapes.get(before.key, {}).items() if found.at > now - REMEMBERED
        }
        shapes = self._shapes[before.key] = ratios_of_shapes(window, known, settings)
        after = replace(before, profile=mark)
        if not shapes or (before.at is not None and now < before.at + STEP):
            return after
        worst = max(shapes.values(), key=lambda found: found.ratio)
        current = before.correction.latency_factor
        if abs(worst.ratio / current - 1) <= settings.dead_band + 2 * worst.error:
            return after
        aim = min(max(worst.ratio, current * (1 - MOST_STEP)), current * (1 + MOST_STEP))
        factor = round(min(max(aim, settings.lowest), settings.highest), 2)
        if factor == current:
            return after
        latency = (LatencyFactor(0, 100, factor),)
        message = f"profile {before.key}: latency x {factor:.2f} (was {current:.2f})"
        return replace(after, correction=replace(before.correction, latency=latency), at=now, message=message)


def ratios_of_shapes(
    window: Sequence[Observation], before: Mapping[str, ShapeRatio], settings: DriftTuning
) -> dict[str, ShapeRatio]:
    """Returns the ratio of each shape over the window; faster counts only alone and with full batches."""
    by_shape: dict[str, list[Observation]] = {}
    for observation in window:
        if observation.exec_ratio is not None:
            tens = round(observation.sm_percent / 10) * 10
            name = f"{observation.batch}@{tens}{'+' if observation.impacts else ''}"
            by_shape.setdefault(name, []).append(observation)
    found = dict(before)
    for shape, observations in by_shape.items():
        proving = [each for each in observations if not each.impacts and each.fill >= settings.full_share]
        for counted in (proving, observations):
            ratio = _ratio(counted, settings)
            if ratio is not None and (ratio.ratio >= 1 or counted is proving):
                found[shape] = ratio
                break
    return found


def _ratio(observations: Sequence[Observation], settings: DriftTuning) -> ShapeRatio | None:
    """Returns the median over the instances' medians, with its error."""
    if len(observations) < settings.fewest:
        return None
    by_instance: dict[str, list[float]] = {}
    for observation in observations:
        by_instance.setdefault(observation.instance, []).append(observation.exec_ratio or 1.0)
    middle = median(median(ratios) for ratios in by_instance.values())
    scatter = 1.4826 * median(abs(ratio - middle) for ratios in by_instance.values() for ratio in ratios)
    return ShapeRatio(middle, scatter / (len(observations) - 2) ** 0.5, max(each.at for each in observations))
