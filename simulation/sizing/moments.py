"""The moments of a load that a rental must carry: what each service asks for in each span of the trace."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simulation.measure.rates import RateCurve

SPAN_SECONDS = 60.0  # a copy that is decided at its beginning serves before its end
MOST_SPANS = 1440
LEAST_RATE = 0.01  # that is planned for


@dataclass(frozen=True, slots=True)
class LoadMoment:
    """The largest rate of each service within one span of the trace."""

    seconds: float  # when the span begins
    rates: Mapping[str, float]

    def times(self, factor: float) -> dict[str, float]:
        return {name: rate * factor for name, rate in self.rates.items()}


def trace_seconds(curves: Mapping[str, RateCurve]) -> float:
    """Returns when the last row of the trace is."""
    return max((curve.seconds[-1] for curve in curves.values()), default=0.0)


def highest_moments(
    curves: Mapping[str, RateCurve], declared: Mapping[str, float], worth: Mapping[str, float]
) -> list[LoadMoment]:
    """Returns the moments of which no other asks for as much of every service, the most expensive first.

    `worth` is what a request a second of each service takes of the fleet. A service without a curve keeps its declared
    rate. Long traces have longer spans.
    """
    until, names = trace_seconds(curves), sorted(declared)
    span = max(SPAN_SECONDS, until / MOST_SPANS)
    begins = [span * number for number in range(max(1, int(np.ceil(until / span))))]
    rates = np.array(
        [
            [_highest(curves[name], begin, begin + span) if name in curves else declared[name] for name in names]
            for begin in begins
        ]
    )
    rates = np.maximum(rates, LEAST_RATE)
    cost = rates @ np.array([worth[name] for name in names])
    kept: list[int] = []
    for place in np.lexsort((np.arange(len(begins)), -cost)).tolist():
        if not kept or not (rates[kept] >= rates[place]).all(axis=1).any():
            kept.append(place)
    return [LoadMoment(begins[place], dict(zip(names, rates[place].tolist(), strict=True))) for place in kept]


def _highest(curve: RateCurve, begin: float, end: float) -> float:
    """Returns the largest rate between two seconds: rates are linear between rows."""
    first, last = bisect_left(curve.seconds, begin), bisect_right(curve.seconds, end)
    return max(curve.at(begin), curve.at(end), *curve.rates[first:last])
