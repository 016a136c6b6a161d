"""Reads which latency a workload kept in each step, of its histograms or of quantiles that its replicas computed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from app.manifests.numbers import finite_number
from clusters.measured import MeasuredSeries
from clusters.metrics.asking import MetricsReader
from clusters.metrics.server_metrics import MetricsOfWorkload

MILLISECONDS = 1e-3  # in a microsecond
ROUNDING = 1e-6  # of what Prometheus computes
ALL = "+Inf"


def read_latency(reader: MetricsReader, series: MetricsOfWorkload, percentile: float, window: str) -> MeasuredSeries:
    """Returns how long requests took from their arrival; a step in which a part of that is unknown is a gap.

    Where waiting has a histogram of its own, its quantile is added: few requests have both at their longest.
    """
    metrics = series.metrics
    if metrics.summary and (found := _read_summary(reader, series, percentile, window)):
        return found
    latencies = read_quantile(reader, series, percentile, (metrics.latency,), window)
    if not metrics.waiting or not latencies:
        return latencies
    waits = read_quantile(reader, series, percentile, (metrics.waiting,), window) or (None,) * len(latencies)
    pairs = zip(latencies, waits, strict=True)
    return tuple(None if latency is None or wait is None else latency + wait for latency, wait in pairs)


def read_quantile(
    reader: MetricsReader, series: MetricsOfWorkload, percentile: float, histograms: Sequence[str], window: str
) -> MeasuredSeries:
    """Returns the quantile of the first of these histograms that has samples; nothing where none has.

    What Prometheus gives lies between the bounds of a bucket as if its requests were spread evenly. All that is
    sure is the upper bound, which is returned; infinity for a quantile above all bounds.
    """
    unit = series.metrics.latency_unit_ms
    for histogram in filter(None, histograms):
        selector = series.buckets(histogram)
        counted = {
            each.labels["le"]: each.value
            for each in reader.read_samples(f"sum by (le) ({selector})")
            if "le" in each.labels
        }
        bounds = sorted(_bounds({*reader.read_label("le", selector, counted), *counted}))
        for chosen in (_choose(counted, percentile), ()):
            found = reader.read_steps(series.quantile(percentile, histogram, window, chosen))
            if not chosen or _is_within(found, chosen, bounds):
                break
        if found:
            return tuple(None if value is None else unit * _bound_above(value, bounds) for value in found)
    return ()


def _read_summary(reader: MetricsReader, series: MetricsOfWorkload, percentile: float, window: str) -> MeasuredSeries:
    """Returns the highest of the quantiles that replicas computed themselves; nothing where they do not."""
    now = [each.labels.get("quantile", "") for each in reader.read_samples(f"count by (quantile) ({series.summaries})")]
    labels = reader.read_label("quantile", series.summaries, now)
    known = {value: label for label in labels if (value := finite_number(label)) is not None}
    enough = min((value for value in known if value * 100 >= percentile * (1 - ROUNDING)), default=None)
    if enough is None:
        return ()
    worst = reader.read_steps(series.worst(known[enough], window))
    return tuple(None if value is None else value * MILLISECONDS for value in worst)


def _choose(counted: Mapping[str, float], percentile: float) -> Sequence[str]:
    """Returns the buckets in which the quantile lies at most times, by what replicas of now have counted so far.

    Most buckets of a server are of latencies that it never has, and rates of all of them take Prometheus longest.
    """
    total = counted.get(ALL, 0.0)
    known = sorted((bound, label) for label in counted if (bound := finite_number(label)) is not None)
    below = [at for at, (_, label) in enumerate(known) if counted[label] < total * percentile / 200]
    whole = [at for at, (_, label) in enumerate(known) if counted[label] >= total]
    chosen = known[max(below, default=0) : min(whole, default=len(known)) + 1]
    return () if not total or len(chosen) in (0, len(known)) else [*(label for _, label in chosen), ALL]


def _is_within(found: MeasuredSeries, chosen: Sequence[str], bounds: Sequence[float]) -> bool:
    """Returns whether all quantiles lie where the chosen buckets show them as all buckets would."""
    inside = sorted(_bounds(chosen))
    if not inside or not bounds:
        return False
    lowest = inside[0] * (1 + ROUNDING) if inside[0] > bounds[0] else -math.inf
    highest = inside[-1] * (1 - ROUNDING) if inside[-1] < bounds[-1] else math.inf
    return all(value is None or lowest < value < highest for value in found)


def _bounds(labels: Iterable[str]) -> Iterator[float]:
    return (bound for label in labels if (bound := finite_number(label)) is not None)


def _bound_above(value: float, bounds: Sequence[float]) -> float:
    """Returns the upper bound of the bucket that has this value. What is above all of them is clipped to the last."""
    if not bounds or value >= bounds[-1] * (1 - ROUNDING):
        return math.inf
    return next(bound for bound in bounds if bound * (1 + ROUNDING) >= value)
