"""Detects when a service's load or latency has moved, and by how much: at once if it has, and never for noise.

Two sums are kept for each service, and both drain while all is as planned. One grows by the load above the plan, in
seconds of planned load: a jump fills it within a tick, a slow rise within some. The other weighs how much likelier the
answers of a tick are under many misses than under the promised ones. Sums over time tolerate that readings overlap.
Falling loads are left to the full cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, log, sqrt

from app.control.domain.readings import LoadReading
from app.control.fast.tuning import TUNING

NEVER = -1e18  # seconds
EQUAL = 1 + 1e-9


class StepTrigger(StrEnum):
    """The reason for a quick step."""

    LOAD_ROSE = "load_rose"
    SLO_MISSED = "slo_missed"
    INSTANCE_DOWN = "instance_down"


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """The load that a service is planned for."""

    rate_per_second: float
    high: float  # of the forecast's band, where that is more
    percentile: float
    start_seconds: float  # until a new instance serves
    slo_seconds: float

    @property
    def level(self) -> float:
        """The highest rate that is no surprise under the plan."""
        return max(self.rate_per_second, self.high, 1e-9)


@dataclass(frozen=True, slots=True)
class CapacityNeed:
    """A service that needs more: `least` at once, `rate_per_second` soon."""

    service: str
    trigger: StepTrigger
    rate_per_second: float
    least: float
    message: str


@dataclass(frozen=True, slots=True)
class LoadWatch:
    """The state of one service between ticks."""

    at: float  # seconds, of any clock that only goes forward
    excess_seconds: float = 0.0  # of planned load
    miss_evidence: float = 0.0
    mean_rate: float = 0.0
    variance: float = TUNING.noise_share**2  # of a second's rate, relative
    readings: tuple[tuple[float, float], ...] = ()  # of the last seconds: when, and how many a second
    called_at: float = NEVER
    planned_at_call: float = 0.0
    cool_seconds: float = TUNING.cool_seconds
    raised: float = 1.0  # by misses, in all
    raised_at: float = NEVER


@dataclass(frozen=True, slots=True)
class WatchedLoads:
    """The states of all services after a tick."""

    watches: Mapping[str, LoadWatch]
    needs: tuple[CapacityNeed, ...]


def watch_loads(
    before: Mapping[str, LoadWatch], planned: Mapping[str, PlannedLoad], readings: Mapping[str, LoadReading],
    now: float, moving: Collection[str],
) -> WatchedLoads:  # fmt: skip
    """Takes one tick. For services in `moving`, which are being handed over, latency says nothing and load does."""
    watches: dict[str, LoadWatch] = {}
    needs = []
    for name in sorted(planned):
        known, reading = before.get(name), readings.get(name)
        if reading is None:
            if known:
                watches[name] = known
            continue
        watches[name], need = _tick(known, name, planned[name], reading, now, name in moving)
        if need:
            needs.append(need)
    return WatchedLoads(watches, tuple(needs))


def _tick(
    before: LoadWatch | None, name: str, plan: PlannedLoad, reading: LoadReading, now: float, moving: bool
) -> tuple[LoadWatch, CapacityNeed | None]:
    rate = reading.rate_per_second
    if before is None:
        before = LoadWatch(at=now, mean_rate=rate)
        passed = 1.0
    else:
        passed = min(max(0.0, now - before.at), TUNING.longest_tick_seconds)
    noise = relative_noise(before, plan)
    watch = LoadWatch(  # made whole: this is done for every service at every tick
        max(now, before.at),
        _next_excess(before.excess_seconds, plan, rate, passed, noise),
        0.0 if moving else _next_evidence(before.miss_evidence, plan, reading, passed),
        _decay(before.mean_rate, rate, passed, TUNING.trend_seconds),
        _next_variance(before, rate, passed),
        _next_readings(before.readings, now, rate),
        before.called_at,
        before.planned_at_call,
        before.cool_seconds,
        before.raised,
        before.raised_at,
    )
    if watch.raised > 1 and now - watch.raised_at > TUNING.raise_seconds and watch.miss_evidence == 0:
        watch = replace(watch, raised=1.0)
    is_cool = now - watch.called_at >= watch.cool_seconds
    if is_cool and _load_has_risen(watch, plan, rate, now, noise):
        return _note_call(watch, plan, now), _need_for_load(watch, name, plan, rate)
    if is_cool and _promise_is_broken(watch, plan, now):
        raised = replace(_note_call(watch, plan, now), raised=watch.raised * TUNING.raise_factor, raised_at=now)
        return raised, _need_for_misses(name, plan, reading)
    return watch, None


def _load_has_risen(watch: LoadWatch, plan: PlannedLoad, rate: float, now: float, noise: float) -> bool:
    is_over = watch.excess_seconds >= calling_excess(noise) or rate > jump_rate(plan)
    return is_over or _outgrows_plan(watch, plan, rate, now)


def _promise_is_broken(watch: LoadWatch, plan: PlannedLoad, now: float) -> bool:
    is_settled = now - max(watch.called_at, watch.raised_at) >= plan.start_seconds + TUNING.settle_seconds
    may_raise = watch.raised * TUNING.raise_factor <= TUNING.most_raise_factor * EQUAL
    return is_settled and watch.miss_evidence >= TUNING.miss_evidence and may_raise


def jump_rate(plan: PlannedLoad) -> float:
    """Returns a rate that chance does not make of the planned one."""
    level = plan.level
    deviations = TUNING.jump_deviations * (1 + sqrt(level + (TUNING.noise_share * level) ** 2))
    return level * (1 + TUNING.slack_share) + deviations


def relative_noise(watch: LoadWatch, plan: PlannedLoad) -> float:
    """Returns the variance of a second's rate relative to the planned one: a usual one and chance, or its own if more.

    Where deviations last for ten seconds, their sum is that of a much larger noise within one second.
    """
    usual = min(watch.variance, TUNING.noise_share**2) + 1 / plan.level
    return max(usual, min(watch.variance, TUNING.most_noise_share**2))


def calling_excess(noise: float) -> float:
    """Returns the sum that triggers a call; it grows with the noise."""
    return max(TUNING.least_excess_seconds, TUNING.excess_variances * noise / TUNING.slack_share)


def fit_trend(readings: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Returns by how much a rate grows a second, and for how long it has; zeros if chance could have made it."""
    if len(readings) < TUNING.trend_readings:
        return 0.0, 0.0
    count = len(readings)
    middle = sum(at for at, _ in readings) / count
    mean = sum(rate for _, rate in readings) / count
    spread = sum((at - middle) ** 2 for at, _ in readings)
    if spread <= 0:
        return 0.0, 0.0
    slope = sum((at - middle) * (rate - mean) for at, rate in readings) / spread
    squares = sum((rate - mean - slope * (at - middle)) ** 2 for at, rate in readings)
    error = sqrt(squares / max(1, count - 2) / spread)
    if slope <= TUNING.trend_errors * error:
        return 0.0, 0.0
    least = min(rate for _, rate in readings)
    began = max(at for at, rate in readings if rate <= least * (1 + TUNING.rise_share))
    return slope, readings[-1][0] - began


def _next_excess(before: float, plan: PlannedLoad, rate: float, passed: float, noise: float) -> float:
    grown = before + passed * (rate / plan.level - 1 - TUNING.slack_share)
    return min(max(0.0, grown), TUNING.most_sum_factor * calling_excess(noise))


def _next_evidence(before: float, plan: PlannedLoad, reading: LoadReading, passed: float) -> float:
    if reading.within_slo is None:
        return before
    promised = 1 - plan.percentile / 100
    many = min(0.9, TUNING.miss_factor * promised + TUNING.miss_share)
    late = min(max(0.0, 1 - reading.within_slo), 1.0)
    one_a_burst = 1 / max(TUNING.burst_slos * plan.slo_seconds, 1e-9)
    answers = passed * min(reading.rate_per_second, TUNING.most_answers_per_second, one_a_burst)
    weight = late * log(many / promised) + (1 - late) * log((1 - many) / (1 - promised))
    if reading.rate_per_second > (1 + TUNING.slack_share) * plan.level:
        weight = min(weight, 0.0)  # the load is above the plan, which explains the misses
    return min(max(0.0, before + answers * weight), TUNING.most_sum_factor * TUNING.miss_evidence)


def _decay(before: float, value: float, passed: float, over_seconds: float) -> float:
    return value + (before - value) * exp(-passed / over_seconds)


def _next_variance(before: LoadWatch, rate: float, passed: float) -> float:
    off = (rate / max(before.mean_rate, 1e-9) - 1) ** 2 * TUNING.reading_seconds
    most = TUNING.most_variance_factor * before.variance
    return _decay(before.variance, min(off, most), passed, TUNING.noise_seconds)


def _next_readings(before: tuple[tuple[float, float], ...], now: float, rate: float) -> tuple[tuple[float, float], ...]:
    if before and now - before[-1][0] < TUNING.spacing_seconds:
        return before
    first = 0
    while first < len(before) and before[first][0] < now - TUNING.trend_seconds:
        first += 1
    return (*before[first:], (now, rate))


def _outgrows_plan(watch: LoadWatch, plan: PlannedLoad, rate: float, now: float) -> bool:
    """Returns whether a load that rose a moment ago keeps rising beyond what was planned for since."""
    if now - watch.called_at > TUNING.rising_seconds or rate < TUNING.rising_share * plan.rate_per_second:
        return False
    return _extrapolate(watch, rate, plan.start_seconds) > (1 + TUNING.slack_share) * plan.level


def _extrapolate(watch: LoadWatch, rate: float, seconds: float) -> float:
    """Returns the rate in so many seconds, if its trend lasts for as long as it may be trusted."""
    slope, lasted = fit_trend(watch.readings)
    ahead = min(seconds + TUNING.reaction_seconds, TUNING.trend_reach * lasted)
    return min(rate + slope * ahead, TUNING.most_trend_factor * rate)


def _note_call(watch: LoadWatch, plan: PlannedLoad, now: float) -> LoadWatch:
    """Makes the next call wait longer for each call in a row that did not raise the planned rate."""
    longest = TUNING.most_cool_seconds
    in_vain = plan.rate_per_second <= watch.planned_at_call * (1 + 1e-6) and now - watch.called_at < 2 * longest
    cool = min(2 * watch.cool_seconds, longest) if in_vain else TUNING.cool_seconds
    return replace(
        watch,
        excess_seconds=0.0,
        miss_evidence=0.0,
        called_at=now,
        planned_at_call=plan.rate_per_second,
        cool_seconds=cool,
    )


def _need_for_load(watch: LoadWatch, name: str, plan: PlannedLoad, rate: float) -> CapacityNeed:
    soon = max(rate, _extrapolate(watch, rate, plan.start_seconds)) * TUNING.headroom_factor
    now = max(rate, _extrapolate(watch, rate, 0.0)) * TUNING.headroom_factor
    message = f"{rate:.4g} requests/s arrive; {plan.rate_per_second:.4g} were planned for"
    return CapacityNeed(name, StepTrigger.LOAD_ROSE, soon, now, message)


def _need_for_misses(name: str, plan: PlannedLoad, reading: LoadReading) -> CapacityNeed:
    rate = reading.rate_per_second
    wanted = max(plan.rate_per_second, rate) * TUNING.raise_factor
    late = 1 - (reading.within_slo if reading.within_slo is not None else 1.0)
    message = (
        f"{100 * late:.3g} % of answers are late at {rate:.4g} requests/s; {plan.rate_per_second:.4g} were planned for"
    )
    return CapacityNeed(name, StepTrigger.SLO_MISSED, wanted, wanted, message)
