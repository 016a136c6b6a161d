"""From evidence to a correction: inside bounds, in whole steps, and only when it is sure to help.

A correction is measured against the profile, never against the last correction, so it has one fixed point and is not
chased. It moves by steps that are rare and larger than noise; inside the dead band nothing moves.
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


@dataclass(frozen=True, slots=True)
class ProfileCorrection:
    """A profile's correction, what it rests on, and what is wrong beyond it."""

    key: str  # model/variant/gpuType
    correction: Correction = UNTOUCHED
    at: datetime | None = None  # of the last step
    since: datetime | None = None  # it has been away from 1
    profile: int = 0  # the profile that was measured: another one begins anew
    shapes: Mapping[str, ShapeEvidence] = field(default_factory=dict)
    late: float = 0.0  # what lateness alone has added
    late_at: datetime | None = None
    message: str = ""  # of the last step
    alarm: str = ""


def update_correction(
    before: ProfileCorrection, observations: Sequence[Observation], now: datetime, settings: DriftTuning
) -> ProfileCorrection:
    """The correction after what was observed of this profile in the last window; the same where it stands."""
    mark = observations[-1].profile if observations else before.profile
    if mark != before.profile:
        anew = before.profile != 0
        before = ProfileCorrection(before.key, profile=mark, correction=UNTOUCHED if anew else before.correction)
        if anew:
            return replace(before, at=now, message=f"profile {before.key} was taken anew: its correction is gone")
    own = [one for one in observations if one.profile == mark and one.at > now - _seconds(settings.window_seconds)]
    oldest = now - _seconds(settings.remember_seconds)
    remembered = {shape: one for shape, one in before.shapes.items() if one.at > oldest}
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
    standing = before.correction
    wanted = Correction(
        latency_factor=_step(standing.latency_factor, *_latency(before), settings),
        memory_factor=_step(standing.memory_factor, *_memory(standing, own, settings), settings),
        power_factor=_step(standing.power_factor, *_power(standing, own, settings), settings),
    )
    if wanted == standing:
        return before
    changes = [
        f"{what} x {after:.2f} (was {was:.2f})"
        for what, was, after in (
            ("latency", standing.latency_factor, wanted.latency_factor),
            ("memory", standing.memory_factor, wanted.memory_factor),
            ("power", standing.power_factor, wanted.power_factor),
        )
        if was != after
    ]
    minutes = sum(one.minutes for one in before.shapes.values())
    said = f"profile {before.key}: {', '.join(changes)}, by {minutes} minutes of {len(before.shapes)} shapes"
    since = None if wanted == UNTOUCHED else before.since or now
    return replace(before, correction=wanted, at=now, since=since, message=said)


def _latency(before: ProfileCorrection) -> tuple[float, float]:
    """The ratio of the worst shape, for its promises count as well, with what lateness adds; and its error."""
    if not before.shapes:
        return (1.0 + before.late if before.late else before.correction.latency_factor), 0.0
    worst = max(before.shapes.values(), key=lambda one: one.ratio)
    return worst.ratio + before.late, worst.error


def _memory(standing: Correction, own: Sequence[Observation], settings: DriftTuning) -> tuple[float, float]:
    """Only ever more: who takes less than told leaves room for its own peaks."""
    told = agreed_ratio([one.memory_ratio for one in own if one.memory_ratio is not None], settings)
    return max(standing.memory_factor, told or 0.0), 0.0


def _power(standing: Correction, own: Sequence[Observation], settings: DriftTuning) -> tuple[float, float]:
    told = agreed_ratio([one.power_ratio for one in own if one.power_ratio is not None], settings)
    return (standing.power_factor if told is None else told), 0.02


def _step(standing: float, ratio: float, error: float, settings: DriftTuning) -> float:
    """Towards what was shown, if that is news: at most a step, in whole quanta, inside the bounds."""
    if abs(ratio / standing - 1) <= settings.dead_band + 2 * error:
        return standing
    aim = min(max(ratio, standing * (1 - settings.most_step)), standing * (1 + settings.most_step))
    aim = min(max(aim, settings.lowest), settings.highest)
    return round(round(aim / settings.quantum) * settings.quantum, 6)


def _late(
    before: ProfileCorrection, own: Sequence[Observation], now: datetime, settings: DriftTuning
) -> tuple[float, datetime | None]:
    """Where execution is as expected and promises are missed all the same, a little more is asked for, step by step.

    It is never taken back by itself: what made it needed would be back at once.
    """
    patience = _seconds(settings.late_step_seconds)
    if any(moment is not None and now < moment + patience for moment in (before.late_at, before.at)):
        return before.late, before.late_at
    share, minutes = late_share(own, now - patience)
    watched = bool(own) and own[0].at <= now - patience
    if not watched or minutes < settings.fewest or share < settings.late_share:
        return before.late, before.late_at
    slower = max((one.ratio for one in before.shapes.values()), default=1.0)
    if abs(slower + before.late - before.correction.latency_factor) > settings.dead_band + settings.quantum:
        return before.late, before.late_at  # execution explains it, and is being corrected
    # A step that the dead band would swallow would be no step.
    return min(before.late + settings.dead_band + settings.late_step, settings.most_late), now


def _alarm(after: ProfileCorrection, now: datetime, settings: DriftTuning) -> str:
    wanted, _ = _latency(after)
    if wanted > settings.highest * (1 + settings.dead_band) or wanted < settings.lowest * (1 - settings.dead_band):
        return (
            f"profile {after.key} is wrong: execution takes {wanted:.1f} times what it says, and corrections end at "
            f"{settings.lowest:g} and {settings.highest:g}; take it anew"
        )
    if after.late >= settings.most_late:
        return f"services on profile {after.key} miss their SLO although it holds by all that is measured"
    away = abs(after.correction.latency_factor - 1)
    if after.since and away >= settings.persistent_share and now >= after.since + _seconds(settings.persistent_seconds):
        return (
            f"profile {after.key} is wrong: since {after.since:%Y-%m-%d %H:%M} execution takes "
            f"{after.correction.latency_factor:.2f} times what it says; take it anew"
        )
    return ""


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)
