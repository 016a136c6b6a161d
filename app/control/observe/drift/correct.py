"""Turns evidence into a correction: within bounds, in whole steps, and only if the evidence is clear.

A correction is measured against the profile, never against the last correction, so it converges to a single value. Its
steps are rare and larger than noise; within the dead band it does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from app.control.domain.snapshot import Correction
from app.control.observe.drift.evidence import ShapeEvidence, agreed_ratio, gather_evidence, late_share
from app.control.observe.drift.minutes import Observation
from app.control.observe.drift.tuning import DriftTuning

UNTOUCHED = Correction()
POWER_ERROR_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class ProfileCorrection:
    """A profile's correction, its evidence, and an alarm if no correction suffices."""

    key: str  # model/variant/gpuType
    correction: Correction = UNTOUCHED
    at: datetime | None = None  # of the last step
    since: datetime | None = None  # when it first differed from 1
    profile: int = 0  # hash of the measured profile: a changed profile starts without correction
    shapes: Mapping[str, ShapeEvidence] = field(default_factory=dict)
    late: float = 0.0  # added because answers are late although execution is as predicted
    late_at: datetime | None = None
    message: str = ""  # of the last step
    alarm: str = ""


def update_correction(
    before: ProfileCorrection, observations: Sequence[Observation], now: datetime, settings: DriftTuning
) -> ProfileCorrection:
    """Returns the correction after the observations of the last window; unchanged where nothing calls for a step."""
    mark = observations[-1].profile if observations else before.profile
    if mark != before.profile:
        is_changed = before.profile != 0
        correction = UNTOUCHED if is_changed else before.correction
        before = ProfileCorrection(before.key, profile=mark, correction=correction)
        if is_changed:
            return replace(before, at=now, message=f"profile {before.key} was changed; its correction was reset")
    own = [
        observation
        for observation in observations
        if observation.profile == mark and observation.at > now - _seconds(settings.window_seconds)
    ]
    oldest = now - _seconds(settings.remember_seconds)
    remembered = {shape: evidence for shape, evidence in before.shapes.items() if evidence.at > oldest}
    shapes = gather_evidence(own, remembered, settings)
    waiting = before.at is not None and now < before.at + _seconds(settings.step_seconds)
    late, late_at = _late(replace(before, shapes=shapes), own, now, settings)
    after = replace(before, shapes=shapes, late=late, late_at=late_at)
    if not waiting:
        after = _take_step(after, own, now, settings)
    return replace(after, alarm=_alarm(after, now, settings))


def _take_step(
    before: ProfileCorrection, own: Sequence[Observation], now: datetime, settings: DriftTuning
) -> ProfileCorrection:
    current = before.correction
    wanted = Correction(
        latency_factor=_step(current.latency_factor, *_latency(before), settings),
        memory_factor=_step(current.memory_factor, *_memory(current, own, settings), settings),
        power_factor=_step(current.power_factor, *_power(current, own, settings), settings),
    )
    if wanted == current:
        return before
    changes = [
        f"{what} x {after:.2f} (was {was:.2f})"
        for what, was, after in (
            ("latency", current.latency_factor, wanted.latency_factor),
            ("memory", current.memory_factor, wanted.memory_factor),
            ("power", current.power_factor, wanted.power_factor),
        )
        if was != after
    ]
    minutes = sum(evidence.minutes for evidence in before.shapes.values())
    message = f"profile {before.key}: {', '.join(changes)}, in {minutes} minutes of {len(before.shapes)} shapes"
    since = None if wanted == UNTOUCHED else before.since or now
    return replace(before, correction=wanted, at=now, since=since, message=message)


def _latency(before: ProfileCorrection) -> tuple[float, float]:
    """Returns the ratio of the slowest shape, with what lateness adds, and its error: each has to meet its SLO."""
    if not before.shapes:
        return (1.0 + before.late if before.late else before.correction.latency_factor), 0.0
    worst = max(before.shapes.values(), key=lambda evidence: evidence.ratio)
    return worst.ratio + before.late, worst.error


def _memory(current: Correction, own: Sequence[Observation], settings: DriftTuning) -> tuple[float, float]:
    """Returns the memory ratio, which never decreases: memory that is unused now leaves room for peaks."""
    ratio = agreed_ratio(
        [observation.memory_ratio for observation in own if observation.memory_ratio is not None], settings
    )
    return max(current.memory_factor, ratio or 0.0), 0.0


def _power(current: Correction, own: Sequence[Observation], settings: DriftTuning) -> tuple[float, float]:
    ratio = agreed_ratio(
        [observation.power_ratio for observation in own if observation.power_ratio is not None], settings
    )
    return (current.power_factor if ratio is None else ratio), POWER_ERROR_SHARE


def _step(current: float, ratio: float, error: float, settings: DriftTuning) -> float:
    """Moves the factor towards the ratio, if they clearly differ: by at most a step, in whole quanta, within bounds."""
    if abs(ratio / current - 1) <= settings.dead_band + 2 * error:
        return current
    aim = min(max(ratio, current * (1 - settings.most_step)), current * (1 + settings.most_step))
    aim = min(max(aim, settings.lowest), settings.highest)
    return round(round(aim / settings.quantum) * settings.quantum, 6)


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
    slower = max((evidence.ratio for evidence in before.shapes.values()), default=1.0)
    if abs(slower + before.late - before.correction.latency_factor) > settings.dead_band + settings.quantum:
        return before.late, before.late_at  # slower execution explains it and is being corrected
    # The dead band is added to the step, which it would swallow otherwise.
    return min(before.late + settings.dead_band + settings.late_step, settings.most_late), now


def _alarm(after: ProfileCorrection, now: datetime, settings: DriftTuning) -> str:
    wanted, _ = _latency(after)
    if wanted > settings.highest * (1 + settings.dead_band) or wanted < settings.lowest * (1 - settings.dead_band):
        return (
            f"profile {after.key} is wrong: execution takes {wanted:.1f} times as long as it says, and corrections "
            f"only go from {settings.lowest:g} to {settings.highest:g}; measure the profile again"
        )
    if after.late >= settings.most_late:
        return f"services on profile {after.key} miss their SLO although all measurements agree with the profile"
    away = abs(after.correction.latency_factor - 1)
    if after.since and away >= settings.persistent_share and now >= after.since + _seconds(settings.persistent_seconds):
        return (
            f"profile {after.key} is wrong: since {after.since:%Y-%m-%d %H:%M} execution takes "
            f"{after.correction.latency_factor:.2f} times as long as it says; measure the profile again"
        )
    return ""


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)
