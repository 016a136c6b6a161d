"""Turns evidence into a correction: within bounds, in whole quanta, and only if the evidence is clear.

A correction is measured against the profile, never against the last correction, so it converges to a single value. Its
steps are rare and larger than noise; within the dead band it does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import exp, log
from statistics import median
from typing import TypeAlias

from app.control.domain.snapshot import Correction, LatencyFactor
from app.control.observe.drift.beliefs import (
    Places,
    differs,
    find_lowest,
    find_margin,
    find_planned_log,
    find_wanted_latency,
    find_wanted_sensitivity,
    has_left_band,
    is_slower,
    keep_within_bounds,
)
from app.control.observe.drift.minutes import Observation
from app.control.observe.drift.tuning import DriftTuning
from solvers.learning.fit import CurveFit, fit_curve, inflate_others
from solvers.learning.region import RatioSample, Region, new_region, update_region

UNTOUCHED = Correction()
POWER_ERROR_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class ProfileCorrection:
    """A profile's correction, the filters that it rests on, and an alarm if no correction suffices."""

    key: str  # model/variant/gpuType
    correction: Correction = UNTOUCHED
    at: datetime | None = None  # of the last step
    since: datetime | None = None  # when it first differed from 1
    profile: int = 0  # hash of the measured profile: a changed profile starts without correction
    regions: tuple[Region, ...] = ()
    late: float = 0.0  # added because answers are late although execution is as predicted
    late_at: datetime | None = None
    message: str = ""  # of the last step
    alarm: str = ""


@dataclass(frozen=True, slots=True)
class ProfileEvidence:
    """The measurements of a profile, and the points of its curve."""

    window: Sequence[Observation] = ()  # all of the last half hour
    fresh: Sequence[Observation] = ()  # those that the filters have not seen
    places: Places = field(default_factory=dict)


def update_correction(
    before: ProfileCorrection, evidence: ProfileEvidence, now: datetime, settings: DriftTuning
) -> ProfileCorrection:
    """Returns the correction after the last observations; unchanged where nothing calls for a step."""
    window = evidence.window
    mark = window[-1].profile if window else before.profile
    if mark != before.profile:
        is_changed = before.profile != 0
        correction = UNTOUCHED if is_changed else before.correction
        before = ProfileCorrection(before.key, profile=mark, correction=correction)
        if is_changed:
            return replace(before, at=now, message=f"profile {before.key} was changed; its correction was reset")
    own = _select_observations(window, mark, now - _seconds(settings.window_seconds))
    fresh = (observation for observation in evidence.fresh if observation.profile == mark)
    regions = update_regions(before.regions, fresh, now, settings)
    fit = fit_curve(regions, now, settings.filter, settings.prior)
    late, late_at = _late(replace(before, regions=regions), own, now, settings)
    after = replace(before, regions=regions, late=late, late_at=late_at)
    if before.at is None or now >= before.at + _seconds(settings.slower_step_seconds):
        is_forced = late != before.late or len(regions) < len(before.regions)
        after = _take_step(after, evidence.places, fit, own, now, settings, is_forced)
    return replace(after, alarm=_alarm(after, evidence.places, fit, now, settings))


def _select_observations(observations: Iterable[Observation], mark: int, since: datetime) -> list[Observation]:
    return [observation for observation in observations if observation.profile == mark and observation.at > since]


def _take_step(
    before: ProfileCorrection, places: Places, fit: CurveFit, own: Sequence[Observation], now: datetime,
    settings: DriftTuning, is_forced: bool,
) -> ProfileCorrection:  # fmt: skip
    current = before.correction
    wanted = replace(
        current,
        latency=find_wanted_latency(fit, places, before.late, settings),
        sensitivity_factor=find_wanted_sensitivity(fit, settings),
    )
    counted = _select_counted(before.regions, settings)
    is_due = has_left_band(counted, current, wanted, settings) or (is_forced and differs(current, wanted, settings))
    is_early = before.at is not None and now < before.at + _seconds(settings.step_seconds)
    if not places or not is_due or (is_early and not is_slower(counted, current, wanted, settings)):
        wanted = current
    if is_early and wanted == current:
        return before
    wanted = replace(
        wanted,
        memory_factor=_step(current.memory_factor, _memory(current, own, settings), 0.0, settings),
        power_factor=_step(current.power_factor, _power(current, own, settings), POWER_ERROR_SHARE, settings),
    )
    if wanted == current:
        return before
    minutes = sum(region.n for region in counted)
    message = f"profile {before.key}: {_describe(current, wanted)}, in {minutes} minutes of {len(counted)} regions"
    since = None if wanted == UNTOUCHED else before.since or now
    return replace(before, correction=wanted, at=now, since=since, message=message)


def _describe(was: Correction, now: Correction) -> str:
    """Describes what has changed; of latency it names the point that is farthest from the declared one."""
    changes = []
    if was.latency != now.latency:
        point = now.farthest if now.latency else was.farthest
        place = f" at batch {point.batch}, {point.sm_percent:g} %" if point.batch else ""
        changes.append(f"latency x {now.latency_factor:.2f}{place} (was {was.latency_factor:.2f})")
    for what, before, after in (
        ("sensitivity", was.sensitivity_factor, now.sensitivity_factor),
        ("memory", was.memory_factor, now.memory_factor),
        ("power", was.power_factor, now.power_factor),
    ):
        if before != after:
            changes.append(f"{what} x {after:.2f} (was {before:.2f})")
    return ", ".join(changes)


def _memory(current: Correction, own: Sequence[Observation], settings: DriftTuning) -> float:
    """Returns the memory ratio, which never decreases: memory that is unused now leaves room for peaks."""
    ratio = find_agreed_ratio(
        [observation.memory_ratio for observation in own if observation.memory_ratio is not None], settings
    )
    return max(current.memory_factor, ratio or 0.0)


def _power(current: Correction, own: Sequence[Observation], settings: DriftTuning) -> float:
    ratio = find_agreed_ratio(
        [observation.power_ratio for observation in own if observation.power_ratio is not None], settings
    )
    return current.power_factor if ratio is None else ratio


def _step(current: float, ratio: float, error: float, settings: DriftTuning) -> float:
    """Moves the factor towards the ratio, if they clearly differ: by at most a step, in whole quanta, within bounds."""
    if abs(ratio / current - 1) <= settings.dead_band + 2 * error:
        return current
    aim = min(max(ratio, current * (1 - settings.most_step)), current * (1 + settings.most_step))
    return keep_within_bounds(aim, settings)


def _late(
    before: ProfileCorrection, own: Sequence[Observation], now: datetime, settings: DriftTuning
) -> tuple[float, datetime | None]:
    """Adds a margin, step by step, while SLOs are missed although execution is as predicted.

    The margin is never removed automatically: the misses would return at once.
    """
    patience = _seconds(settings.late_step_seconds)
    if any(moment is not None and now < moment + patience for moment in (before.late_at, before.at)):
        return before.late, before.late_at
    share, minutes = late_share(own, now - patience)
    watched = bool(own) and own[0].at <= now - patience
    if not watched or minutes < settings.fewest or share < settings.late_share:
        return before.late, before.late_at
    covered = log(1 + settings.dead_band + settings.quantum)
    for region in _select_counted(before.regions, settings):
        if region.mean > find_planned_log(region, before.correction) + covered:
            return before.late, before.late_at  # slower execution explains it and is being corrected
    return min(before.late + settings.dead_band + settings.late_step, settings.most_late), now


def _alarm(
    after: ProfileCorrection, places: Places, fit: CurveFit, now: datetime, settings: DriftTuning
) -> str:  # fmt: skip
    wrong = []
    for region in fit.regions:
        factor = exp(fit.at(region.batch, region.sm_percent)[0]) + after.late
        lowest = find_lowest(find_margin(places, region.batch, region.sm_percent), settings)
        if not lowest * (1 - settings.dead_band) <= factor <= settings.highest * (1 + settings.dead_band):
            wrong.append((factor, lowest))
    if wrong:
        factor, lowest = max(wrong, key=lambda found: abs(log(found[0])))
        return (
            f"profile {after.key} is wrong: execution takes {factor:.1f} times as long as it says, and corrections "
            f"only go from {lowest:.2g} to {settings.highest:g}; measure the profile again"
        )
    if after.late >= settings.most_late:
        return f"services on profile {after.key} miss their SLO although all measurements agree with the profile"
    point = max(after.correction.latency, key=lambda found: _find_excess(found, places), default=None)
    lasts = after.since is not None and now >= after.since + _seconds(settings.persistent_seconds)
    if lasts and point and _find_excess(point, places) >= settings.persistent_share:
        return (
            f"profile {after.key} is wrong: since {after.since:%Y-%m-%d %H:%M} execution takes {point.factor:.2f} "
            f"times as long as it says at batch {point.batch}, {point.sm_percent:g} % of the SMs; "
            "measure the profile again"
        )
    return ""


def _find_excess(point: LatencyFactor, places: Places) -> float:
    """Returns by how much a place is slower than planned, or faster than the profile's mean."""
    return max(point.factor - 1, exp(-find_margin(places, point.batch, point.sm_percent)) - point.factor)


def _select_counted(regions: Sequence[Region], settings: DriftTuning) -> list[Region]:
    return [region for region in regions if region.counts(settings.filter)]


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


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
