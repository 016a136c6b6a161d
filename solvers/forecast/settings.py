"""How careful a forecast is: one class, with defaults that the tests hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForecastTuning:
    """Times in seconds; shares of a rate."""

    observe_seconds: float = 1800.0  # the declared rate is a floor until this much was observed
    silent_seconds: float = 60.0  # older samples say nothing of now
    cooldown_seconds: float = 300.0  # a peak is remembered for this long
    smooth_seconds: float = 60.0  # what counts as a peak lasts about this long
    noise_seconds: float = 1800.0  # over which noise is judged
    independent_seconds: float = 30.0  # noise further apart than this is another noise
    surprise: float = 4.0  # standard deviations that noise does not reach
    moving_surprise: float = 2.0  # while a plan has just risen: what moves is more likely to move on
    sudden_band: float = 0.03  # a rate may pass the plan by this much for a while,
    steady_band: float = 0.01  # and by this much for long
    rise_share: float = 0.05  # a plan that must rise is made for so much more than is seen
    fall_band: float = 0.15  # a plan stands until it is this much too high
    least_noise: float = 0.01  # a share; a load is never known better
    trend_seconds: float = 30.0
    most_trend: float = 0.15  # a trend adds at most this share of what is seen
    leap: float = 2.0  # a lone sample above its neighbours by this factor is not believed,
    witness_seconds: float = 20.0  # unless it is as long as this
    least_share: float = 0.02  # of the declared rate; a service that nobody asks stays ready for this much
