"""How many replicas a workload should have, by what is known until now: its load, shown rates, bounds and what stands.

Pure, and without a look into the future. `gpuwright assess --backtest` measures what these decisions are worth, and a
scaler carries them out. It goes up at once, to a forecast with headroom for the time that a replica needs to start; it
comes down to what half an hour needed, and not while anything else changed in that time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from clusters.measured import LatencyPromise, MeasuredSeries, WorkloadSeries
from clusters.savings.floors import ReplicaBounds
from clusters.savings.needs import LEAST_HOURS, highest_rate
from clusters.savings.shown import ShownRate, find_kept_steps, find_promise, find_shown_rates
from solvers.forecast import ForecastTuning, Sample, expect_most

START_SECONDS = 600.0  # from the decision until a replica serves
CALM_SECONDS = 1800.0  # without need and without a change, before replicas go
RECENT_SECONDS = 6 * 3600  # of load that a forecast looks at, and a scaler reads at each look
SIGNIFICANT_DIGITS = 3
UNSEEN = "what has been seen ready, as no maxReplicas allows more"
TUNING = ForecastTuning(
    cooldown_seconds=CALM_SECONDS, recall_seconds=CALM_SECONDS, noise_seconds=RECENT_SECONDS, trend_seconds=2700.0
)


@dataclass(frozen=True, slots=True)
class KnownLoad:
    """Holds what the data says of a workload's load until now."""

    rates_per_second: Sequence[float | None]  # the highest of each step; the last step ends now, None is a gap
    step_seconds: int
    shown: Sequence[ShownRate]  # by all that was measured until now
    most_ready: int  # replicas that were ever ready at once until now
    input_tokens: float | None = None  # of a request in the last half hour, on average; None: lengths are not measured
    output_tokens: float | None = None
    was_missed: bool = False  # the SLO, in the newest step
    reporting: int | None = None  # the replicas whose load is in the newest step; None: not compared with those ready


@dataclass(frozen=True, slots=True)
class StandingReplicas:
    """The replicas that a workload has: as declared, and how many of them are ready."""

    declared: int
    ready: int
    unchanged_seconds: float = math.inf  # since the number last changed, by whomever


@dataclass(frozen=True, slots=True)
class ReplicaDecision:
    """How many replicas there should be, how many of them on one node at most, and why, as a sentence."""

    replicas: int
    most_per_node: int
    reason: str
    expected_per_second: float | None = None  # None: the load is not known


def know_load(series: WorkloadSeries, promise: LatencyPromise | None, step_seconds: int) -> KnownLoad | str:
    """Returns what a series that ends now says of the load, or why it does not say enough."""
    steps = len(series.rates_per_second)
    hours = steps * step_seconds / 3600
    if hours < LEAST_HOURS:
        return f"its load was measured for {hours:g} hours, and a day is needed"
    promise = promise or find_promise(series)
    if promise is None:
        return "its latency was not measured, or is above all buckets"
    kept = find_kept_steps(series, promise)
    shown, most = find_shown_rates(series, kept, step_seconds), find_most_ready(series)
    return recent_load(series, steps, step_seconds, shown, most, kept[-1])


def find_most_ready(series: WorkloadSeries) -> int:
    return int(max((count for count in series.ready_replicas if count is not None), default=0))


def recent_load(
    series: WorkloadSeries, end: int, step_seconds: int, shown: Sequence[ShownRate], most_ready: int,
    is_kept: bool | None,
) -> KnownLoad:  # fmt: skip
    """Returns what was known when the step before `end` was over."""
    first = max(0, end - max(1, RECENT_SECONDS // step_seconds))
    late = slice(max(0, end - math.ceil(CALM_SECONDS / step_seconds)), end)
    return KnownLoad(
        rates_per_second=[highest_rate(series, step) for step in range(first, end)],
        step_seconds=step_seconds,
        shown=shown,
        most_ready=most_ready,
        input_tokens=_mean(series.input_tokens[late]),
        output_tokens=_mean(series.output_tokens[late]),
        was_missed=is_kept is False,
        reporting=int(series.ready_replicas[end - 1] or 0),
    )


def _mean(values: MeasuredSeries) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def decide_replicas(load: KnownLoad | str, bounds: ReplicaBounds | str, standing: StandingReplicas) -> ReplicaDecision:
    """Returns how many replicas there should be now. A load or bounds that are not known have a sentence instead."""
    now = standing.declared
    for missing in (bounds, load):
        if isinstance(missing, str):
            return _keep(now, bounds, missing)
    assert isinstance(bounds, ReplicaBounds) and isinstance(load, KnownLoad)
    if load.rates_per_second[-1] is None:
        return _keep(now, bounds, f"its load of the last {_spell_time(load.step_seconds)} is not known")
    ahead = START_SECONDS + load.step_seconds
    expected = expect_most(_samples(load), ahead, TUNING)
    text = f"peak of {_rate(expected)}/s in the next {_spell_time(ahead)}"
    needed = must_survive = 0
    if expected:
        fitting = [shown for shown in load.shown if shown.covers(load.input_tokens, load.output_tokens)]
        best = min(fitting, key=lambda shown: (shown.replicas_for(expected), -shown.rate_per_second), default=None)
        if best is None:
            return _keep(now, bounds, f"{text}, and no rate is shown within its SLO at such lengths", expected)
        needed, must_survive = best.replicas_for(expected), best.replicas_by_rate(expected)
        text += f", {_rate(best.rate_per_second)}/s shown for each: {must_survive}"
        text += f"; {needed}, as fewer have not been seen to serve it" if needed > must_survive else ""
    wanted, most_per_node, reasons = bound_by_sight(bounds, load.most_ready, now).apply(needed, must_survive)
    text = "; ".join((text, *reasons))
    if wanted < now and (obstacle := _find_obstacle(load, standing)):
        return ReplicaDecision(now, most_per_node, f"{text}; {now} stay, as {obstacle}", expected)
    return ReplicaDecision(wanted, most_per_node, text, expected)


def bound_by_sight(bounds: ReplicaBounds, most_ready: int, now: int) -> ReplicaBounds:
    """Returns bounds that end at what stands or has been ready, unless somebody says how many may be.

    What few requests showed for each replica says little of many replicas, so nothing is extrapolated to more.
    """
    most = max(now, most_ready, bounds.least)
    return bounds if bounds.most is not None else replace(bounds, most=most, most_reason=UNSEEN)


def _keep(now: int, bounds: ReplicaBounds | str, reason: str, expected: float | None = None) -> ReplicaDecision:
    together = bounds.together if isinstance(bounds, ReplicaBounds) else max(1, now)
    return ReplicaDecision(now, together, f"{reason}, so {now} {'stays' if now == 1 else 'stay'}", expected)


def _find_obstacle(load: KnownLoad, standing: StandingReplicas) -> str:
    """Returns why no replica goes yet; empty: nothing speaks against it."""
    if standing.unchanged_seconds < CALM_SECONDS:
        return f"the number changed less than {_spell_time(CALM_SECONDS)} ago"
    if standing.ready < standing.declared:
        return f"{standing.ready} of {standing.declared} are ready"
    if load.reporting is not None and load.reporting < standing.ready:
        return f"only {load.reporting} of {standing.ready} report their load"
    known = load.rates_per_second[-max(1, math.ceil(CALM_SECONDS / load.step_seconds)) :]
    if None in known or len(known) * load.step_seconds < CALM_SECONDS:
        return f"its load of the last {_spell_time(CALM_SECONDS)} has gaps"
    if not load.rates_per_second[-1] and any(load.rates_per_second):  # replicas that hang answer nothing either
        return f"nothing was answered just now, after load in the last {RECENT_SECONDS // 3600} hours"
    return "its SLO was missed just now" if load.was_missed else ""


def _samples(load: KnownLoad) -> list[Sample]:
    seconds = load.step_seconds
    return [
        Sample(at=(index + 1) * seconds, seconds=seconds, requests=rate * seconds)
        for index, rate in enumerate(load.rates_per_second)
        if rate is not None
    ]


def _rate(value: float) -> str:
    digits = max(0, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:.{digits}f}"


def _spell_time(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
