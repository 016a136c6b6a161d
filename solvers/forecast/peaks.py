"""A simple, robust forecast from the recent peak and the trend, with bands in which the planned rate stays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from solvers.forecast.noise import noise_share, surely_at_least
from solvers.forecast.samples import Sample, lower_lone_leaps, mean_rate, select_since, usable
from solvers.forecast.settings import DEFAULT, ForecastTuning

Reason = Literal["declared", "held", "risen", "fallen", "silent", "outlook"]

SUDDEN_SECONDS = (30.0, 60.0, 120.0)
STEADY_SECONDS = (300.0, 600.0)
LEAST_RATE = 1e-3


@dataclass(frozen=True, slots=True)
class Forecast:
    """The rate to plan for. A planned rate between `low` and `high` stays."""

    rate: float
    low: float
    high: float
    reason: Reason
    observed: float = 0.0  # the newest rate
    noise: float = 0.0  # as a share
    bare: float = 0.0  # what a new plan would be without a margin,
    sure: float = 0.0  # and for the load that is surely there alone: a margin raises this


@dataclass(frozen=True, slots=True)
class PlannedRate:
    """A rate that is planned, 0 for none, and what of its history decides whether it stays."""

    rate: float
    declared: float
    ahead_seconds: float
    margin: float = 0.0  # share by which a plan exceeds the load that is surely there (`solvers.forecast.margin`)
    risen_margin: float = 0.0  # that is in the rate since it last rose
    observed_seconds: float = math.inf  # how long the service was observed
    silent_seconds: float = 0.0  # how long ago the newest sample ended,
    risen_seconds: float = math.inf  # the planned rate rose,
    missed_seconds: float = math.inf  # and the SLO was missed
    settings: ForecastTuning = DEFAULT

    def wait(self, seconds: float) -> PlannedRate:
        """Returns it so many seconds later, in which it neither rose nor missed its SLO."""
        return replace(
            self, observed_seconds=self.observed_seconds + seconds, risen_seconds=self.risen_seconds + seconds,
            missed_seconds=self.missed_seconds + seconds,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Need:
    """The rate that a load of late needs, in parts."""

    arriving: float  # the mean of the last minute
    peak: float  # the highest minute, as it counts
    headroom: float  # share by which a plan exceeds the peak
    trend: float  # the rate's gain until the plan is replaced


def expect(samples: Sequence[Sample], plan: PlannedRate) -> Forecast:
    """Forecasts the rate to plan for until `ahead_seconds` after the newest sample.

    Soon after a rise or a missed SLO the plan does not fall; only after a rise is less evidence needed for the next
    one, as missed answers are no sign of load.
    """
    known, settings, declared, planned = usable(samples), plan.settings, plan.declared, plan.rate
    is_new = plan.observed_seconds < settings.observe_seconds
    floor = declared if is_new else max(declared * settings.least_share, LEAST_RATE)
    if not known:
        return Forecast(max(declared, LEAST_RATE), declared, declared, "declared")
    reach = max(settings.swing_seconds + settings.smooth_seconds, *STEADY_SECONDS)
    calm = lower_lone_leaps(select_since(known, known[-1].at - reach), settings.leap, settings.witness_seconds)
    noise = noise_share(known, settings)
    is_moving = plan.risen_seconds < settings.cooldown_seconds
    now, observed = calm[-1].at, calm[-1].rate_per_second
    low, pressing = _confident(calm, now, noise, is_moving, settings)
    headroom, recall = _headroom(calm, settings), settings.recall_seconds
    sure = low * (1 + headroom)
    low *= 1 + plan.margin
    bare = _need(calm, now, recall, max(floor, sure), settings)
    need = max(bare, low * (1 + headroom))  # a plan that fell further would rise at once
    if planned > need * (1 + settings.fall_band):  # how long a swing lasts matters only where the plan may fall
        recall = recall_seconds(known, settings)
        bare = _need(calm, now, recall, max(floor, sure), settings)
        need = max(bare, low * (1 + headroom))
    low = max(low, floor)
    high = max(need * (1 + settings.fall_band), low)
    if plan.silent_seconds > settings.silent_seconds and planned > 0:
        return Forecast(max(planned, floor), low, high, "silent", observed, noise, bare, sure)
    if planned < low:
        reason: Reason = "risen"
        rise = max(pressing, observed) * ((1 + headroom) * (1 + plan.margin))
        rate = rise + _trend(calm, noise, plan.ahead_seconds, settings) if planned > 0 else max(need, low)
    elif (
        planned > high
        and min(plan.risen_seconds, plan.missed_seconds) >= settings.cooldown_seconds
        and _is_settled(calm, now, recall, need, floor, settings)
    ):
        reason, rate = "fallen", need
    else:
        reason, rate = "held", planned
    if rate <= floor:
        reason, rate = ("held" if planned == floor else "declared"), floor
    return Forecast(rate, low, high, reason, observed, noise, bare, sure)


def expect_most(samples: Sequence[Sample], ahead_seconds: float, settings: ForecastTuning = DEFAULT) -> float:
    """Forecasts the highest rate until `ahead_seconds` after the newest sample, whatever is planned now.

    It is the peak of late with the headroom, and the trend until then; 0 without samples or without requests.
    """
    known = usable(samples)
    if not known:
        return 0.0
    calm = lower_lone_leaps(known, settings.leap, settings.witness_seconds)
    need = _need(calm, calm[-1].at, settings.recall_seconds, 0.0, settings)
    return need + _trend(calm, noise_share(known, settings), ahead_seconds, settings)


def split_need(samples: Sequence[Sample], recall: float, ahead_seconds: float) -> Need:
    """Returns the parts of what a plan with this memory of swings is made of; there is at least one sample."""
    known, settings = usable(samples), DEFAULT
    calm = lower_lone_leaps(known, settings.leap, settings.witness_seconds)
    share = _headroom(calm, settings)
    return Need(
        arriving=mean_rate(select_since(calm, calm[-1].at - settings.smooth_seconds)),
        peak=_need(calm, calm[-1].at, recall, 0.0, settings) / (1 + share),
        headroom=share,
        trend=_trend(calm, noise_share(known, settings), ahead_seconds, settings),
    )


def _confident(
    calm: Sequence[Sample], now: float, noise: float, is_moving: bool, settings: ForecastTuning
) -> tuple[float, float]:
    """Returns the least planned rate that no window's mean clearly exceeds, and the mean of the window that set it.

    A sudden rise must exceed the noise. A steady rate is known more exactly, so it may exceed the plan by less, and
    only while it lasts.
    """
    low = pressing = 0.0
    lasting = mean_rate(select_since(calm, now - settings.smooth_seconds))
    for window, band, surprise in _windows(calm, now, is_moving, settings):
        least = surely_at_least(window, noise, surprise, settings.independent_seconds)
        if len(window) > 1:
            least = min(least, lasting)
        if least / (1 + band) > low:
            low, pressing = least / (1 + band), min(mean_rate(window), max(lasting, calm[-1].rate_per_second))
    return low, pressing


def _windows(
    calm: Sequence[Sample], now: float, is_moving: bool, settings: ForecastTuning
) -> Iterator[tuple[Sequence[Sample], float, float]]:
    """Yields the windows of which each is compared with the plan: its samples, its band, and how many deviations are
    a surprise."""
    surprise = settings.moving_surprise if is_moving else settings.surprise
    yield calm[-1:], settings.sudden_band, surprise
    for seconds in SUDDEN_SECONDS:
        yield select_since(calm, now - seconds), settings.sudden_band, surprise
    for seconds in STEADY_SECONDS:
        window = select_since(calm, now - seconds)
        # Fewer requests scatter by more deviations than those of a normal distribution.
        is_counted = sum(sample.requests for sample in window) >= settings.fewest_counted
        yield window, settings.steady_band, min(surprise, settings.steady_surprise) if is_counted else surprise


def _need(
    calm: Sequence[Sample],
    now: float,
    recall: float,
    floor: float,
    settings: ForecastTuning,
    less_seconds: float = 0.0,
) -> float:
    """Returns the rate to plan for by the peaks of cool-down and swing; `less_seconds` shortens both memories."""
    peak = _peak(calm, now, settings.cooldown_seconds - less_seconds, settings)
    swing = _peak(calm, now, recall - less_seconds, settings)
    return max(max(peak, min(swing, peak * settings.most_swing)) * (1 + _headroom(calm, settings)), floor)


def _headroom(calm: Sequence[Sample], settings: ForecastTuning) -> float:
    """Returns the share by which a plan exceeds the observed rate: more where so few requests arrive that counts tell
    little, as a rise is then noticed late."""
    counted = mean_rate(select_since(calm, calm[-1].at - settings.count_seconds)) * settings.count_seconds
    return settings.rise_share + settings.count_doubt / math.sqrt(max(counted, settings.fewest_counted))


def _peak(calm: Sequence[Sample], now: float, within_seconds: float, settings: ForecastTuning) -> float:
    """Returns the highest mean over `smooth_seconds` that ended within this time."""
    smooth_seconds, begin = settings.smooth_seconds, now - within_seconds
    recent = select_since(calm, begin - smooth_seconds)
    highest = requests = seconds = 0.0
    oldest = iter(recent)
    first = next(oldest, None)
    for sample in recent:
        requests += sample.requests
        seconds += sample.seconds
        while first and seconds - first.seconds >= smooth_seconds:
            requests -= first.requests
            seconds -= first.seconds
            first = next(oldest, None)
        if sample.at > begin and (seconds >= smooth_seconds / 2 or sample.at == now):
            rate = requests / seconds
            if rate > highest:
                highest = rate
    return highest


def _trend(calm: Sequence[Sample], noise: float, ahead_seconds: float, settings: ForecastTuning) -> float:
    """Returns the rate's gain until then if its trend continues, 0 if noise explains the trend."""
    now, observed = calm[-1].at, calm[-1].rate_per_second
    before = [
        sample for sample in select_since(calm, now - settings.trend_seconds - calm[-1].seconds) if sample.at < now
    ]
    gained = observed - mean_rate(before)
    if not before or gained < settings.surprise * noise * observed:
        return 0.0
    middle = sum(sample.at for sample in before) / len(before)
    return min(gained / (now - middle) * ahead_seconds, settings.most_trend * observed)


def _is_settled(
    calm: Sequence[Sample], now: float, recall: float, need: float, floor: float, settings: ForecastTuning
) -> bool:
    """Returns whether the plan may fall: the cool-down is almost fully observed, and no second fall follows soon."""
    cooldown = settings.cooldown_seconds
    if sum(sample.seconds for sample in select_since(calm, now - cooldown)) < 0.8 * cooldown:
        return False
    later = _need(calm, now, recall, floor, settings, settings.smooth_seconds)
    return need <= later * (1 + settings.fall_band)


def recall_seconds(samples: Sequence[Sample], settings: ForecastTuning) -> float:
    """Returns for how long a peak is remembered.

    It is longer where the load took long to come back to a level that it had left: the longest such time decides. A
    time beyond the longest memory does not count.
    """
    rates = _minutes(samples, settings.smooth_seconds)
    longest = settings.recall_seconds
    for begin, left in enumerate(rates):
        lowest = left
        for steps, rate in enumerate(rates[begin + 1 :], 1):
            lowest = min(lowest, rate)
            if rate * (1 + settings.sudden_band) >= left:
                back = (steps + 1) * settings.smooth_seconds
                if lowest * (1 + settings.fall_band) < left and back <= settings.swing_seconds:
                    longest = max(longest, min(settings.swing_doubt * back, settings.swing_seconds))
                break
    return longest


def _minutes(samples: Sequence[Sample], seconds: float) -> list[float]:
    """Returns the mean rates of equal spans, counted back from the newest sample; 0 for one without samples."""
    now = samples[-1].at
    requests, lasted = [0.0], [0.0]
    for sample in reversed(samples):
        span = int((now - sample.at) // seconds)
        while span >= len(requests):
            requests.append(0.0)
            lasted.append(0.0)
        requests[span] += sample.requests
        lasted[span] += sample.seconds
    return [count / long if long else 0.0 for count, long in zip(reversed(requests), reversed(lasted), strict=True)]
