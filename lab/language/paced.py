"""A server at a rate that one sweep lacks: its model, paced by the sweep's other rates, and the curve through them.

At each measured rate the model's iterations are slowed or quickened until its TPOT is the measured one. This pace
changes little from rate to rate, where TPOT itself may double, so it is the pace that is interpolated. The second
opinion is that 1 / TPOT falls along a line as the rate grows. The answer is the geometric mean of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace

import numpy as np
from numpy.typing import NDArray

from solvers.llm.iteration import IterationCost
from solvers.llm.sweeps.load import LoadTest, MeasuredLoad, OfferedRequests, ServerModel, TokenTimes

Floats = NDArray[np.float64]

MOST_PACE = 0.5  # in logarithms, from the model's own pace
PACE_TOLERANCE = 1e-4
LEAST_SHARE = 0.05  # of the fastest: where the line of 1 / TPOT would fall below


class PacedSweep:
    """One shape of requests at several rates, on a server whose model is known roughly."""

    def __init__(self, model: ServerModel, measured: Sequence[MeasuredLoad]) -> None:
        if len(measured) < 2:
            raise ValueError(f"{len(measured)} measured loads are too few; a sweep needs at least 2")
        self.model = model
        self.rates = np.array([_rate(each) for each in measured])
        self.times = np.array([astuple(each.times) for each in measured])
        self.paces = np.array([_pace(model, each) for each in measured])
        modelled = [
            OfferedRequests(each.load).times(_paced(model, pace))
            for each, pace in zip(measured, self.paces, strict=True)
        ]
        self.late = np.log(self.times[:, 0] / np.array([each.ttft_ms for each in modelled]))

    def predict(self, load: LoadTest, rate_per_second: float) -> TokenTimes:
        """Returns the token times of a load at this rate; that of a closed loop follows from its pace."""
        known = ~np.isnan(self.late)
        pace = _line(self.rates, self.paces, rate_per_second)
        modelled = OfferedRequests(load).times(_paced(self.model, pace))
        inside = self.rates[known].min() < rate_per_second < self.rates[known].max()
        nearest = int(np.abs(self.rates[known] - rate_per_second).argmin())
        late = _line(self.rates[known], self.late[known], rate_per_second) if inside else self.late[known][nearest]
        ttft_ms = modelled.ttft_ms * float(np.exp(late))
        if rate_per_second > self.rates[known].min():  # below, the line of 1 / TTFT says nothing: no request waits
            ttft_ms = float(np.sqrt(ttft_ms * _inverse(self.rates[known], self.times[known, 0], rate_per_second)))
        tpot_ms = float(np.sqrt(modelled.tpot_ms * _inverse(self.rates, self.times[:, 1], rate_per_second)))
        return TokenTimes(ttft_ms, tpot_ms)


def _rate(measured: MeasuredLoad) -> float:
    load, times = measured.load, measured.times
    if load.rate_per_second:
        return load.rate_per_second
    return 1e3 * load.concurrency / (times.ttft_ms + times.tpot_ms * (load.output_tokens - 1))


def _paced(model: ServerModel, pace: float) -> ServerModel:
    return replace(model, cost=IterationCost(*(ms * float(np.exp(pace)) for ms in astuple(model.cost))))


def _pace(model: ServerModel, measured: MeasuredLoad) -> float:
    from scipy.optimize import brentq

    requests = OfferedRequests(measured.load)

    def compare_pace(pace: float) -> float:
        return float(np.log(requests.times(_paced(model, pace)).tpot_ms / measured.times.tpot_ms))

    if compare_pace(-MOST_PACE) > 0:
        return -MOST_PACE
    return (
        MOST_PACE
        if compare_pace(MOST_PACE) < 0
        else float(brentq(compare_pace, -MOST_PACE, MOST_PACE, xtol=PACE_TOLERANCE))
    )


def _line(rates: Floats, values: Floats, rate: float) -> float:
    """Returns the value at the rate on the line through those at the two rates around it, else at the two nearest."""
    below, above = np.flatnonzero(rates <= rate), np.flatnonzero(rates > rate)
    if len(below) and len(above):
        start, end = below[rates[below].argmax()], above[rates[above].argmin()]
    else:
        start, end = np.abs(rates - rate).argsort()[:2]
    share = (rate - rates[start]) / (rates[end] - rates[start])
    return float(values[start] + (values[end] - values[start]) * share)


def _inverse(rates: Floats, times: Floats, rate: float) -> float:
    inverse = 1 / times
    return 1 / max(_line(rates, inverse, rate), LEAST_SHARE * float(inverse.max()))
