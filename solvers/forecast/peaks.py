"""A simple, robust forecast from the recent peak and the trend, with bands in which the planned rate stays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from solvers.forecast.noise import deviation_of_mean, noise_share
from solvers.forecast.samples import Sample, mean_rate, requests_of, seconds_of, since, usable, without_lone_leaps
from solvers.forecast.settings import ForecastTuning

Reason = Literal["declared", "held", "risen", "fallen", "silent"]

SUDDEN_SECONDS = (0.0, 20.0, 30.0, 60.0, 120.0)  # the first is the newest sample alone
STEADY_SECONDS = (300.0, 600.0)
WINDOW_SECONDS = SUDDEN_SECONDS + STEADY_SECONDS
LEAST_RATE = 1e-3
DEFAULT = ForecastTuning()


@dataclass(frozen=True, slots=True)
class Forecast:
    """The rate to plan for. A planned rate between `low` and `high` stays."""

    rate: float
    low: float
    high: float
    reason: Reason
    observed: float = 0.0  # the newest rate
    noise: float = 0.0  # as a share


def expect(
    samples: Sequence[Sample],
    declared: float,
    planned: float,
    ahead_seconds: float,
    settings: ForecastTuning = DEFAULT,
    *,
    observed_seconds: float | None = None,
    silent_seconds: float = 0.0,
    risen_seconds: float = math.inf,
) -> Forecast:
    """Forecasts the rate to plan for until `ahead_seconds` after the newest sample.

    `planned` is the currently planned rate, 0 without one. `observed_seconds` is how long the service was observed, if
    that is longer than the samples given; `silent_seconds` is how long ago the newest sample ended, `risen_seconds`
    how long ago the planned rate rose.
    """
    known = usable(samples)
    watched_seconds = sum(sample.seconds for sample in known) if observed_seconds is None else observed_seconds
    is_new = watched_seconds < settings.observe_seconds
    floor = declared if is_new else max(declared * settings.least_share, LEAST_RATE)
    if not known:
        return Forecast(max(declared, LEAST_RATE), declared, declared, "declared")
    reach = max(settings.swing_seconds + settings.smooth_seconds, *STEADY_SECONDS)
    late = since(known, known[-1].at - reach)
    calm = without_lone_leaps(late, settings.leap, settings.witness_seconds)
    noise = noise_share(known, settings)
    surprise = settings.surprise if risen_seconds >= settings.cooldown_seconds else settings.moving_surprise
    now, observed = calm[-1].at, calm[-1].rate_per_second
    low, pressing = _confident(calm, now, noise, surprise, settings)
    need = max(_remembered(calm, now, 0.0, settings) * (1 + settings.rise_share), floor)
    low = max(low, floor)
    high = max(need * (1 + settings.fall_band), low)
    if silent_seconds > settings.silent_seconds and planned > 0:
        return Forecast(max(planned, floor), low, high, "silent", observed, noise)
    if planned < low:
        reason: Reason = "risen"
        trend = _trend(calm, noise, ahead_seconds, settings)
        rate = max(pressing, observed) * (1 + settings.rise_share) + trend if planned > 0 else max(need, low)
    elif (
        planned > high and risen_seconds >= settings.cooldown_seconds and _is_settled(calm, now, need, floor, settings)
    ):
        reason, rate = "fallen", need
    else:
        reason, rate = "held", planned
    if rate <= floor:
        reason, rate = ("held" if planned == floor else "declared"), floor
    return Forecast(rate, low, high, reason, observed, noise)


def _confident(
    calm: Sequence[Sample], now: float, noise: float, surprise: float, settings: ForecastTuning
) -> tuple[float, float]:
    """Returns the least planned rate that no window's mean clearly exceeds, and the mean of the window that set it.

    A sudden rise must exceed the noise. A steady rate is known more exactly, so it may exceed the plan by less, and
    only while it lasts.
    """
    low = pressing = requests = seconds = 0.0
    lasting = mean_rate(since(calm, now - settings.smooth_seconds))
    before = _rate_before(calm, now)
    newest = calm[-1].rate_per_second
    begin = len(calm)
    for within_seconds in WINDOW_SECONDS:
        end, begin = begin, min(begin, len(calm) - max(1, len(since(calm, now - within_seconds))))
        requests += requests_of(calm[begin:end])
        seconds += seconds_of(calm[begin:end])
        mean = requests / seconds
        deviation = deviation_of_mean(requests, seconds, noise, settings.independent_seconds)
        least = mean - surprise * deviation
        if within_seconds in STEADY_SECONDS:
            band = settings.steady_band
        else:
            band = settings.sudden_band
            # The headroom of a plan does not make a rise less certain: a rate that clearly rose is known to move.
            if mean - settings.surprise * deviation > before * (1 + band):
                least = max(least, mean - settings.moving_surprise * deviation)
        if within_seconds > settings.smooth_seconds:
            least, mean = min(least, lasting), min(mean, max(lasting, newest))
        if least / (1 + band) > low:
            low, pressing = least / (1 + band), mean
    return low, pressing


def _rate_before(calm: Sequence[Sample], now: float) -> float:
    """Returns the mean rate before the windows in which a rise is sudden, infinite if too little of it is known."""
    begin, end = now - SUDDEN_SECONDS[-1] - STEADY_SECONDS[0], now - SUDDEN_SECONDS[-1]
    samples = since(calm, begin)
    samples = samples[: len(samples) - len(since(samples, end))]
    return mean_rate(samples) if seconds_of(samples) >= STEADY_SECONDS[0] / 2 else math.inf


def _remembered(calm: Sequence[Sample], now: float, less_seconds: float, settings: ForecastTuning) -> float:
    """Returns the peak of the cool-down, or of the longer time in which a swing comes back; both this much shorter."""
    peak = _peak(calm, now, settings.cooldown_seconds - less_seconds, settings)
    swing = _peak(calm, now, settings.swing_seconds - less_seconds, settings)
    return max(peak, min(swing, peak * settings.most_swing))


def _peak(calm: Sequence[Sample], now: float, within_seconds: float, settings: ForecastTuning) -> float:
    """Returns the highest mean over `smooth_seconds` that ended within this time."""
    smooth_seconds, begin = settings.smooth_seconds, now - within_seconds
    recent = since(calm, begin - smooth_seconds)
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
    """Returns the rate's gain until then if its trend continues, 0 if noise or a single step explains the trend."""
    newest, observed = calm[-1], calm[-1].rate_per_second
    before = since(calm, newest.at - settings.trend_seconds - newest.seconds)[:-1]
    gained = observed - mean_rate(before)
    deviation = deviation_of_mean(newest.requests, newest.seconds, noise, settings.independent_seconds)
    if not before or gained < settings.surprise * deviation:
        return 0.0
    middle = sum(sample.at for sample in before) / len(before)
    # A rate that made a step and stays there gains nothing more from one sample to the next.
    slope = min(gained / (newest.at - middle), (observed - before[-1].rate_per_second) / (newest.at - before[-1].at))
    return min(max(0.0, slope) * ahead_seconds, settings.most_trend * observed)


def _is_settled(calm: Sequence[Sample], now: float, need: float, floor: float, settings: ForecastTuning) -> bool:
    """Returns whether the plan may fall: the cool-down is almost fully observed, and no second fall follows soon."""
    cooldown = settings.cooldown_seconds
    if sum(sample.seconds for sample in since(calm, now - cooldown)) < 0.8 * cooldown:
        return False
    later = _remembered(calm, now, settings.smooth_seconds, settings) * (1 + settings.rise_share)
    return need <= max(later, floor) * (1 + settings.fall_band)
