"""The tuning of a forecast, with defaults that the tests check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForecastTuning:
    """Times in seconds; shares of a rate."""

    observe_seconds: float = 1800.0  # the declared rate is a floor until a service was observed for so long
    silent_seconds: float = 60.0  # older samples do not describe the present
    cooldown_seconds: float = 300.0  # a peak is remembered for this long,
    recall_seconds: float = 720.0  # and for this long as the upper end of a swing: a load often comes back
    swing_seconds: float = 900.0  # the longest memory of a swing, where the load lately took long to come back
    swing_doubt: float = 2.0  # a swing is remembered for this many times as long as the load took to come back
    most_swing: float = 1.5  # times the peak of the cool-down: a higher one was no swing
    smooth_seconds: float = 60.0  # a peak is a mean over about this long
    noise_seconds: float = 1800.0  # the window over which noise is measured
    independent_seconds: float = 30.0  # samples further apart than this have independent noise
    surprise: float = 4.0  # standard deviations that noise alone does not reach within two minutes,
    steady_surprise: float = 3.0  # and seldom within five or ten
    moving_surprise: float = 2.0  # the same soon after a plan rose, as a changing rate is likely to change further
    sudden_band: float = 0.03  # a rate may exceed the plan by this share for a while,
    steady_band: float = 0.01  # and by this share for long
    rise_share: float = 0.05  # a plan exceeds the observed rate by this share,
    count_doubt: float = 3.0  # and by so many deviations of a count of requests, which matter where few arrive
    count_seconds: float = 600.0  # the count's duration
    fewest_counted: float = 100.0  # with fewer requests, deviations say little
    fall_band: float = 0.15  # a plan falls only once it is too high by this share
    least_noise: float = 0.01  # a share; a load is never known more exactly
    trend_seconds: float = 30.0
    most_trend: float = 0.15  # a trend adds at most this share of the observed rate
    leap: float = 2.0  # a single sample above its neighbours by this factor is ignored,
    witness_seconds: float = 20.0  # unless it covers at least this long
    least_share: float = 0.02  # of the declared rate; a service without requests stays ready for this much


DEFAULT = ForecastTuning()
# Where requests of others find no GPU, a declared rate must have arrived. Peaks that did are remembered as ever: with a
# memory of two minutes plans follow each swing, and a fleet that is 1 % short sheds three times as much.
SCARCE = ForecastTuning(observe_seconds=300.0)
