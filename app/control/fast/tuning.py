"""The tuning of the fast lane's watch: one frozen object, each value with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WatchTuning:
    """Shares are of the planned rate unless another is named."""

    # Load above the plan
    slack_share: float = 0.10  # the full cycle follows this much without the fast lane
    noise_share: float = 0.10  # of a rate within one second: tolerated, together with what random arrivals add
    most_noise_share: float = 0.35  # the same where a service's own noise is known to be more, as its swings last
    excess_variances: float = 9.0  # over the slack: with them e ** 18 seconds pass between two false alarms
    least_excess_seconds: float = 0.3  # of planned load
    jump_deviations: float = 5.5  # of one second's rate: triggers at once, and so many requests more at low rates
    most_sum_factor: float = 3.0  # a sum never holds more than its trigger times this, so that it drains soon
    # Missed promises
    miss_factor: float = 4.0  # times the promised misses ...
    miss_share: float = 0.02  # ... and so many more is what a broken promise looks like
    miss_evidence: float = 12.0  # log of likelihoods
    most_answers_per_second: float = 20.0  # more of them add no evidence
    burst_slos: float = 5.0  # misses come in bursts, as queues do: answers within so many SLOs count as one
    raise_factor: float = 1.15  # of the planned rate, if promises are missed at the planned load
    most_raise_factor: float = 1.5  # in all: more capacity does not cure what is still wrong then
    raise_seconds: float = 600.0  # without misses, until a raise is forgotten
    # Readings
    longest_tick_seconds: float = 5.0  # a reader that slept knows nothing of the time between
    noise_seconds: float = 300.0  # over which a service's own noise is learnt: in less, few swings of ten seconds
    reading_seconds: float = 5.0  # that a reading may average over: its noise is smaller by the root of it
    most_variance_factor: float = 9.0  # what is further off is a change of load, not noise
    # Trends
    trend_seconds: float = 12.0  # of readings that a trend is fitted to
    trend_readings: int = 4  # at least
    spacing_seconds: float = 0.9  # between these readings
    trend_errors: float = 2.0  # a smaller slope counts as none
    rise_share: float = 0.05  # above the lowest reading: there the rise began
    trend_reach: float = 2.0  # a trend is extrapolated for so many times as long as it has lasted
    most_trend_factor: float = 3.0  # times the rate of now: no trend predicts more
    reaction_seconds: float = 5.0  # from a reading to the assignment of a step
    rising_seconds: float = 60.0  # after a call a trend alone may call again
    rising_share: float = 0.95  # a trend alone does not call below it
    # Calls
    headroom_factor: float = 1.05
    settle_seconds: float = 10.0  # after a start, before its effect can be read
    cool_seconds: float = 2.0  # after a call: its effect has to be read first
    most_cool_seconds: float = 60.0  # if calls lead to nothing


TUNING = WatchTuning()
