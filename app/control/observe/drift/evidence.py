"""Feeds observations to the filters of their regions, and sums up what is no curve: lateness, memory, power."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import log
from statistics import median
from typing import TypeAlias

from app.control.observe.drift.minutes import Observation
from app.control.observe.drift.tuning import DriftTuning
from solvers.learning import RatioSample, Region, inflate_others, new_region, update_region

RegionKey: TypeAlias = tuple[int, int, bool, tuple[str, ...]]


def update_regions(
    before: Sequence[Region], fresh: Iterable[Observation], now: datetime, settings: DriftTuning
) -> tuple[Region, ...]:
    """Returns the regions after observations that they have not seen; only what traffic excites changes.

    A minute of a region is one sample: the median over its instances, so that a single broken one does not count.
    """
    oldest = now - timedelta(seconds=settings.filter.remember_seconds)
    known = {_key_of(region): region for region in before if region.at is None or region.at > oldest}
    minutes: dict[tuple[datetime, RegionKey], list[Observation]] = {}
    for observation in fresh:
        if observation.exec_ratio is not None:
            minutes.setdefault((observation.at, _region_of(observation, settings)), []).append(observation)
    for (at, key), observations in sorted(minutes.items(), key=lambda entry: entry[0]):
        impacts = observations[-1].impacts
        region = replace(known.get(key) or new_region(key[0], key[1], impacts, key[2]), impacts=impacts)
        value = median(log(observation.exec_ratio or 1.0) for observation in observations)
        known[key] = update_region(region, RatioSample(at, value, len(observations)), settings.filter)
    inflated = inflate_others(before, list(known.values()), settings.prior)
    newest = sorted(inflated, key=lambda region: region.at or oldest)[-settings.most_regions :]
    return tuple(sorted(newest, key=_key_of))


def late_share(observations: Iterable[Observation], since: datetime) -> tuple[float, int]:
    """Returns the share of minutes that missed the SLO, and the number of minutes."""
    late = [
        observation.late for observation in observations if observation.late is not None and observation.at >= since
    ]
    return (sum(late) / len(late) if late else 0.0), len(late)


def find_agreed_ratio(ratios: Sequence[float], settings: DriftTuning) -> float | None:
    """Returns the median ratio; None for too few ratios."""
    return median(ratios) if len(ratios) >= settings.fewest else None


def _region_of(observation: Observation, settings: DriftTuning) -> RegionKey:
    width = settings.region_percent
    sm_percent = max(width, round(observation.sm_percent / width) * width)
    names = tuple(name for name, _ in observation.impacts)
    is_full = bool(names) or observation.fill >= settings.full_share
    return observation.batch, sm_percent, is_full, names


def _key_of(region: Region) -> RegionKey:
    return region.batch, region.sm_percent, region.is_full, tuple(name for name, _ in region.impacts)
