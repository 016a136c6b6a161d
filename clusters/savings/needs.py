"""How many replicas a workload needs, step by step, by the rates that its replicas have been seen to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusters.measured import LatencyPromise, WorkloadSeries
from clusters.savings.shown import ShownRate, find_kept_steps, find_promise, find_shown_rates, value_at

LEAST_HOURS = 24  # a day has a peak
NOTHING_CAME = "no request came"
KNOWN_SHARE = 0.9  # of the steps


@dataclass(frozen=True, slots=True)
class LoadNeed:
    """What a workload's load needs. `peak_replicas` serve every step as it was served."""

    promise: LatencyPromise
    peak_replicas: int
    peak_step: int
    peak_rate_per_second: float
    shown: ShownRate | None  # what serves the peak; None: nothing shows that fewer do than stood there
    most_ready: int
    mean_ready: float
    mean_needed: float
    highest_rate_per_second: float  # that a replica can have served in any step, kept or not, if load was even
    rates_per_second: tuple[float, ...]  # gaps count as no load: for what no plan can go below


def find_need(series: WorkloadSeries, promise: LatencyPromise | None, step_seconds: int) -> LoadNeed | str:
    """Returns what the load needs, or why the data does not show it."""
    steps = range(len(series.rates_per_second))
    known = [
        step for step in steps if series.rates_per_second[step] is not None and series.ready_replicas[step] is not None
    ]
    hours = len(steps) * step_seconds / 3600
    if hours < LEAST_HOURS:
        return f"{hours:g} hours were measured, and a day is needed"
    if len(known) < KNOWN_SHARE * len(steps):
        return f"only {100 * len(known) / len(steps):.0f} % of the time was measured"
    promise = promise or find_promise(series)
    if promise is None:
        if any(series.rates_per_second):
            return "its latency was not measured, or is above all buckets"
        promise = LatencyPromise(1.0, NOTHING_CAME)  # nothing to keep
    kept = find_kept_steps(series, promise)
    shown = find_shown_rates(series, kept, step_seconds)
    needs = {step: _need_at(series, kept, shown, step) for step in known}
    peak = max(needs, key=lambda step: (needs[step][0], highest_rate(series, step) or 0.0))
    ready = {step: series.ready_replicas[step] or 0.0 for step in known}
    return LoadNeed(
        promise=promise,
        peak_replicas=needs[peak][0],
        peak_step=peak,
        peak_rate_per_second=highest_rate(series, peak) or 0.0,
        shown=needs[peak][1],
        most_ready=int(max(ready.values())),
        mean_ready=sum(ready.values()) / len(ready),
        mean_needed=sum(count for count, _ in needs.values()) / len(needs),
        highest_rate_per_second=max((highest_rate(series, step) or 0.0) / _fewest_at(series, step) for step in known),
        rates_per_second=tuple((series.rates_per_second[step] or 0.0) if step in needs else 0.0 for step in steps),
    )


def find_needed_by_step(series: WorkloadSeries, promise: LatencyPromise, step_seconds: int) -> list[int | None]:
    """Returns the replicas that serve each step by all that the series shows; None where its load is not known.

    Where the promise was missed, one more than stood there is the least that can be enough.
    """
    kept = find_kept_steps(series, promise)
    shown = find_shown_rates(series, kept, step_seconds)
    needed: list[int | None] = []
    for step, rate in enumerate(series.rates_per_second):
        ready = series.ready_replicas[step]
        if rate is None or ready is None:
            needed.append(None)
        elif kept[step] is False:
            needed.append(max(_need_at(series, kept, shown, step)[0], int(ready) + 1))
        else:
            needed.append(_need_at(series, kept, shown, step)[0])
    return needed


def highest_rate(series: WorkloadSeries, step: int) -> float | None:
    """Returns the rate that replicas must serve: the highest within the step, where it was measured; None: a gap."""
    rate = series.rates_per_second[step]
    return None if rate is None else max(rate, value_at(series.peaks_per_second, step) or 0.0)


def _fewest_at(series: WorkloadSeries, step: int) -> float:
    """Returns the fewest replicas that can have served at once in the step."""
    fewest = value_at(series.fewest_replicas, step) if series.fewest_replicas else series.ready_replicas[step]
    return max(1.0, fewest or 0.0)


def _need_at(
    series: WorkloadSeries, kept: Sequence[bool | None], shown: Sequence[ShownRate], step: int
) -> tuple[int, ShownRate | None]:
    """Returns the replicas needed and what shows it. Where nothing does, those that were ready are needed."""
    rate, ready = highest_rate(series, step), max(1, int(series.ready_replicas[step] or 0))
    if not rate:
        return 0, None
    lengths = value_at(series.input_tokens, step), value_at(series.output_tokens, step)
    are_known = all(bool(tokens) == (length is not None) for tokens, length in zip(
        (series.input_tokens, series.output_tokens), lengths, strict=True
    ))  # fmt: skip
    fitting = [window for window in shown if window.covers(*lengths)] if are_known else []
    best = min(fitting, key=lambda window: window.replicas_for(rate), default=None)
    if best is None:
        return ready, None
    count = best.replicas_for(rate)
    if kept[step] is None or (kept[step] is False and count < ready) or (kept[step] and count > ready):
        return ready, None
    return count, best
