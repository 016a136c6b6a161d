"""When a service's load or latency has moved, and by how much: at once when it has, and never for noise.

Two sums are kept for each service, and both drain while all is as planned. One grows by what arrives beyond the plan,
in seconds of planned load: a jump fills it within a tick, a slow rise within some. The other weighs how much likelier
the answers of a tick are under many misses than under as many as were promised. Sums over time bear that readings
overlap. Loads that fall are left to the cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import exp, log, sqrt

from app.control.domain.readings import LoadReading

SLACK = 0.10  # of the planned rate: so much more is the cycle's to follow
NOISE = 0.10  # of a rate within one second: it is borne, with what arrivals by chance add
CERTAIN = 9.0  # the sum that calls is so many variances over the slack: e ** 18 seconds between two false calls
LEAST_SUM = 0.3  # seconds of planned load
JUMP = 5.5  # deviations of one second's rate: it calls at once, and so many requests more where there are few
FULL = 3.0  # times the sum that calls: it never holds more, so that it drains soon
MISSES = 4.0  # times the promised misses
MORE_MISSES = 0.02  # and so many more: what a missed promise looks like
MISS_SUM = 12.0  # log of likelihoods
MOST_EVIDENCE = 20.0  # answers a second: more of them tell no more
BURST_SLOS = 5.0  # misses come together, as a queue rises and falls: so many times the SLO tells as much as one answer
LONGEST_TICK_SECONDS = 5.0  # a reader that slept knows nothing of the time between
NOISE_SECONDS = 60.0  # that a service's own noise is learnt over
AVERAGED = 5.0  # seconds that a reading may be a mean of: its noise is that of a second, over the root of so many
TREND_SECONDS = 12.0  # of readings, that a trend is drawn through
SURE = 2.0  # errors: a trend that is no larger is none
AS_FAR = 2.0  # times as long as it has lasted is a trend looked ahead, and no longer than a start takes
REACTION_SECONDS = 5.0  # from a reading to a step that is told
SETTLE_SECONDS = 10.0  # beside a start: what it does must be seen
RISING_SECONDS = 60.0  # after a call: a trend alone may call again
NEARLY = 0.95  # of what is planned for: a trend alone calls no sooner
LEAST_READINGS = 4
SPACING_SECONDS = 0.9  # between readings that a trend is drawn through
RISEN = 0.05  # above the least of the readings: there the rise began
FAR_OFF = 9.0  # times the variance
HEADROOM = 1.05
MOST_AHEAD = 3.0  # times what is seen: a trend says no more than that
COOL_SECONDS = 2.0  # after a call: what it led to must be seen first
MOST_COOL_SECONDS = 60.0  # when calls lead to nothing
RAISE = 1.15  # of the rate planned for, where promises are missed at the load that was planned for
MOST_RAISED = 1.5  # in all: what is still wrong then is no matter of capacity
FORGET_SECONDS = 600.0  # without misses: the profile has been corrected, or what disturbed it is gone


class StepTrigger(StrEnum):
    """What moved."""

    LOAD_ROSE = "load_rose"
    SLO_MISSED = "slo_missed"


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """What a service is planned for."""

    rate_per_second: float
    high: float = 0.0  # of the forecast's band, where that is more
    percentile: float = 99.0
    start_seconds: float = 20.0  # until a new instance serves
    slo_seconds: float = 0.0  # 0: nobody knows


@dataclass(frozen=True, slots=True)
class CapacityNeed:
    """A service that needs more, now: `least` at once, `rate_per_second` soon."""

    service: str
    cause: StepTrigger
    rate_per_second: float
    least: float
    message: str


@dataclass(frozen=True, slots=True)
class LoadWatch:
    """What is remembered of one service between ticks."""

    at: float = 0.0  # seconds, of any clock that only goes forward
    over: float = 0.0
    missing: float = 0.0
    mean: float = 0.0
    variance: float = NOISE**2  # of a second's rate, relative
    readings: tuple[tuple[float, float], ...] = ()  # of the last seconds: when, and how many a second
    called_at: float = -1e18
    planned_then: float = 0.0
    cool_seconds: float = COOL_SECONDS
    raised: float = 1.0  # by misses, in all
    raised_at: float = -1e18


@dataclass(frozen=True, slots=True)
class WatchedLoads:
    """All services after a tick."""

    watches: Mapping[str, LoadWatch] = field(default_factory=dict)
    calls: tuple[CapacityNeed, ...] = ()


def watch_loads(
    before: Mapping[str, LoadWatch], planned: Mapping[str, PlannedLoad], seen: Mapping[str, LoadReading], now: float,
    moving: Collection[str] = (),
) -> WatchedLoads:  # fmt: skip
    """One tick. Services in `moving` are being handed over: how late they answer says nothing, how much comes does."""
    watches: dict[str, LoadWatch] = {}
    calls = []
    for name in sorted(planned):
        known, reading = before.get(name), seen.get(name)
        if reading is None:
            if known:
                watches[name] = known
            continue
        watches[name], call = _ticked(known, name, planned[name], reading, now, name in moving)
        if call:
            calls.append(call)
    return WatchedLoads(watches, tuple(calls))


def _ticked(
    before: LoadWatch | None, name: str, plan: PlannedLoad, seen: LoadReading, now: float, moving: bool
) -> tuple[LoadWatch, CapacityNeed | None]:
    rate = seen.rate_per_second
    if before is None:
        before = LoadWatch(at=now, mean=rate)
        passed = 1.0
    else:
        passed = min(max(0.0, now - before.at), LONGEST_TICK_SECONDS)
    noise = noise_of(before, plan)
    watch = LoadWatch(  # made whole: this is done for every service at every tick
        max(now, before.at),
        _over(before.over, plan, rate, passed, noise),
        0.0 if moving else _missing(before.missing, plan, seen, passed),
        _towards(before.mean, rate, passed, TREND_SECONDS),
        _variance(before, rate, passed),
        _readings(before.readings, now, rate),
        before.called_at,
        before.planned_then,
        before.cool_seconds,
        before.raised,
        before.raised_at,
    )
    if watch.raised > 1 and now - watch.raised_at > FORGET_SECONDS and watch.missing == 0:
        watch = replace(watch, raised=1.0)
    cooled = now - watch.called_at >= watch.cool_seconds
    if cooled and (watch.over >= called_at(noise) or rate > jump(plan) or _outgrows(watch, plan, rate, now)):
        return _called(watch, plan, now), _load_rose(watch, name, plan, rate)
    settled = now - max(watch.called_at, watch.raised_at) >= plan.start_seconds + SETTLE_SECONDS
    if cooled and settled and watch.missing >= MISS_SUM and watch.raised * RAISE <= MOST_RAISED * (1 + 1e-9):
        raised = replace(_called(watch, plan, now), raised=watch.raised * RAISE, raised_at=now)
        wanted = max(plan.rate_per_second, rate) * RAISE
        late = 1 - (seen.within_slo if seen.within_slo is not None else 1.0)
        message = f"{late:.1%} of answers are late at {rate:.4g}/s, and {plan.rate_per_second:.4g}/s were planned for"
        return raised, CapacityNeed(name, StepTrigger.SLO_MISSED, wanted, wanted, message)
    return watch, None


def jump(plan: PlannedLoad) -> float:
    """A rate that no chance makes of what is planned for."""
    level = _level(plan)
    return level * (1 + SLACK) + JUMP * (1 + sqrt(level + (NOISE * level) ** 2))


def noise_of(watch: LoadWatch, plan: PlannedLoad) -> float:
    """Variance of a second's rate against the planned one: its own, no more than is borne, and that of chance."""
    return min(watch.variance, NOISE**2) + 1 / _level(plan)


def called_at(noise: float) -> float:
    """The sum that calls: the more a rate scatters, the larger."""
    return max(LEAST_SUM, CERTAIN * noise / SLACK)


def trend(readings: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """By how much a rate grows a second, and for how long it has; none where chance could have made it."""
    if len(readings) < LEAST_READINGS:
        return 0.0, 0.0
    count = len(readings)
    middle = sum(at for at, _ in readings) / count
    mean = sum(rate for _, rate in readings) / count
    spread = sum((at - middle) ** 2 for at, _ in readings)
    if spread <= 0:
        return 0.0, 0.0
    slope = sum((at - middle) * (rate - mean) for at, rate in readings) / spread
    misses = sum((rate - mean - slope * (at - middle)) ** 2 for at, rate in readings)
    error = sqrt(misses / max(1, count - 2) / spread)
    if slope <= SURE * error:
        return 0.0, 0.0
    least = min(rate for _, rate in readings)
    began = max(at for at, rate in readings if rate <= least * (1 + RISEN))
    return slope, readings[-1][0] - began


def _level(plan: PlannedLoad) -> float:
    return max(plan.rate_per_second, plan.high, 1e-9)


def _over(sum_before: float, plan: PlannedLoad, rate: float, passed: float, noise: float) -> float:
    return min(max(0.0, sum_before + passed * (rate / _level(plan) - 1 - SLACK)), FULL * called_at(noise))


def _missing(sum_before: float, plan: PlannedLoad, seen: LoadReading, passed: float) -> float:
    if seen.within_slo is None:
        return sum_before
    promised = 1 - plan.percentile / 100
    many = min(0.9, MISSES * promised + MORE_MISSES)
    late = min(max(0.0, 1 - seen.within_slo), 1.0)
    answers = passed * min(seen.rate_per_second, MOST_EVIDENCE, 1 / max(BURST_SLOS * plan.slo_seconds, 1e-9))
    weight = late * log(many / promised) + (1 - late) * log((1 - many) / (1 - promised))
    if seen.rate_per_second > (1 + SLACK) * _level(plan):
        weight = min(weight, 0.0)  # more comes than was planned for, which explains them
    return min(max(0.0, sum_before + answers * weight), FULL * MISS_SUM)


def _towards(before: float, value: float, passed: float, over_seconds: float) -> float:
    return value + (before - value) * exp(-passed / over_seconds)


def _variance(before: LoadWatch, rate: float, passed: float) -> float:
    """What is far off is a move, and no noise."""
    off = (rate / max(before.mean, 1e-9) - 1) ** 2 * AVERAGED
    return _towards(before.variance, min(off, FAR_OFF * before.variance), passed, NOISE_SECONDS)


def _readings(before: tuple[tuple[float, float], ...], now: float, rate: float) -> tuple[tuple[float, float], ...]:
    if before and now - before[-1][0] < SPACING_SECONDS:
        return before
    first = 0
    while first < len(before) and before[first][0] < now - TREND_SECONDS:
        first += 1
    return (*before[first:], (now, rate))


def _outgrows(watch: LoadWatch, plan: PlannedLoad, rate: float, now: float) -> bool:
    """Whether a load that rose a moment ago goes on to rise beyond what has been planned for since."""
    if now - watch.called_at > RISING_SECONDS or rate < NEARLY * plan.rate_per_second:
        return False
    return _ahead(watch, plan, rate, plan.start_seconds) > (1 + SLACK) * _level(plan)


def _ahead(watch: LoadWatch, plan: PlannedLoad, rate: float, seconds: float) -> float:
    """The rate so many seconds from now, if its trend goes on for as long as it may be trusted."""
    slope, lasted = trend(watch.readings)
    return min(rate + slope * min(seconds + REACTION_SECONDS, AS_FAR * lasted), MOST_AHEAD * rate)


def _called(watch: LoadWatch, plan: PlannedLoad, now: float) -> LoadWatch:
    """What a call leaves. One after another that led to no more than was planned for then makes the next one wait."""
    in_vain = plan.rate_per_second <= watch.planned_then * (1 + 1e-6) and now - watch.called_at < 2 * MOST_COOL_SECONDS
    cool = min(2 * watch.cool_seconds, MOST_COOL_SECONDS) if in_vain else COOL_SECONDS
    return replace(watch, over=0.0, missing=0.0, called_at=now, planned_then=plan.rate_per_second, cool_seconds=cool)


def _load_rose(watch: LoadWatch, name: str, plan: PlannedLoad, rate: float) -> CapacityNeed:
    wanted = max(rate, _ahead(watch, plan, rate, plan.start_seconds)) * HEADROOM
    least = max(rate, _ahead(watch, plan, rate, 0.0)) * HEADROOM
    message = f"{rate:.4g}/s arrive where {plan.rate_per_second:.4g}/s are planned for"
    return CapacityNeed(name, StepTrigger.LOAD_ROSE, wanted, least, message)
