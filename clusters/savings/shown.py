"""The rates that one replica has been seen to keep: at least 15 minutes within its promise, at known lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import TypeAlias

from clusters.measured import USUAL_PERCENTILE, LatencyPromise, MeasuredSeries, WorkloadSeries

WINDOW_SECONDS = 900
LIKE_SHARE = 0.95  # lengths are alike if the requests of a window were no more than 5 % shorter
MISSED_SHARE = 0.5  # of a window's steps: then the window shows a rate that is too much
LEAST_REQUESTS = 20  # of a window that misses: of fewer, one slow request says nothing of the load
USUAL_SHARE = 0.95  # without a promise, the latency kept in so many of the steps counts as the promise
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ShownRate:
    """A window in which each replica served at least `rate_per_second` within the promise, beside the others ready.

    Requests queue less where more replicas stand behind one queue. So what few replicas kept, more will keep, at the
    same rate each; and nothing is shown for fewer than `replicas`.
    """

    rate_per_second: float  # of each replica, in the worst step
    replicas: int  # the most that were ready
    input_tokens: float | None  # the shortest mean in a step; None: lengths were not measured
    output_tokens: float | None
    step: int  # where the window begins

    def covers(self, input_tokens: float | None, output_tokens: float | None) -> bool:
        """Returns whether requests were at least about as long as these."""
        return _reaches(self.input_tokens, input_tokens) and _reaches(self.output_tokens, output_tokens)

    def replicas_for(self, rate_per_second: float) -> int:
        return max(self.replicas, self.replicas_by_rate(rate_per_second))

    def replicas_by_rate(self, rate_per_second: float) -> int:
        """Returns how many would do if fewer than stood there served as much each."""
        return ceil(rate_per_second / self.rate_per_second - ROUNDING)


# Windows that no other one makes superfluous, with what they are compared by.
_Front: TypeAlias = list[tuple[tuple[float, ...], ShownRate]]


def _reaches(shown: float | None, asked: float | None) -> bool:
    if asked is None:
        return shown is None
    return shown is not None and shown >= LIKE_SHARE * asked


def value_at(series: MeasuredSeries, step: int) -> float | None:
    return series[step] if series else None


def find_promise(series: WorkloadSeries) -> LatencyPromise | None:
    """Returns what the workload keeps today: the latency of all but the slowest steps."""
    whole, first = (
        _find_usual(values, series.rates_per_second) for values in (series.latency_ms, series.first_token_ms)
    )
    source = "what it keeps today"
    if whole:
        return LatencyPromise(whole, source, USUAL_PERCENTILE)
    return LatencyPromise(None, source, USUAL_PERCENTILE, first_token_ms=first) if first else None


def _find_usual(values: MeasuredSeries, rates: MeasuredSeries) -> float | None:
    """Returns the latency of all but the slowest steps; None where it is not known, or above all buckets."""
    known = sorted(
        value for value, rate in zip(values, rates, strict=False) if value is not None and value > 0 and rate
    )
    usual = known[ceil(USUAL_SHARE * len(known)) - 1] if known else inf
    return usual if usual < inf else None


def find_kept_steps(series: WorkloadSeries, promise: LatencyPromise) -> list[bool | None]:
    """Returns for each step whether the promise was kept; None where that is unknown or nothing was asked."""
    promised = (
        (promise.latency_ms, series.latency_ms),
        (promise.first_token_ms, series.first_token_ms),
        (promise.token_ms, series.token_ms),
    )
    kept: list[bool | None] = []
    for step, rate in enumerate(series.rates_per_second):
        answers = [
            None if (value := value_at(values, step)) is None else value <= limit
            for limit, values in promised
            if limit is not None
        ]
        kept.append(None if not rate or (None in answers and False not in answers) else all(answers))
    return kept


def find_shown_rates(series: WorkloadSeries, kept: Sequence[bool | None], step_seconds: int) -> list[ShownRate]:
    """Returns the windows that show most, without those that a window with a missed promise contradicts."""
    found = ShownSoFar(series, kept, step_seconds)
    for step in range(len(kept)):
        found.add(step)
    return found.sound()


class ShownSoFar:
    """The windows that show most, as one step after the other ends.

    A window with a missed promise contradicts those with no more replicas, at no lower rate and no smaller lengths.
    One in which hardly any request came contradicts none.
    """

    def __init__(self, series: WorkloadSeries, kept: Sequence[bool | None], step_seconds: int) -> None:
        self._series, self._kept = series, kept
        self._step_seconds = step_seconds
        self._length = ceil(WINDOW_SECONDS / step_seconds)
        self._good: list[ShownRate] = []  # any may count again, once a better one is contradicted
        self._bad: _Front = []
        self._best: _Front = []
        self._sound: list[ShownRate] | None = None  # sorted; None: to be sorted again

    def add(self, step: int) -> None:
        """Takes the window that ends with this step."""
        steps = range(step - self._length + 1, step + 1)
        if steps.start < 0:
            return
        kept = [self._kept[each] for each in steps]
        if all(kept):
            for window in _window(self._series, steps, is_kept=True):
                self._good.append(window)
                self._keep_sound(window)
        elif kept.count(False) >= MISSED_SHARE * self._length and self._count_requests(steps) >= LEAST_REQUESTS:
            for window in _window(self._series, steps, is_kept=False):
                if _keep_extremes(self._bad, window, worst=True):
                    self._best, self._sound = [], None
                    for good in self._good:
                        self._keep_sound(good)

    def _count_requests(self, steps: range) -> float:
        return sum(self._series.rates_per_second[step] or 0.0 for step in steps) * self._step_seconds

    def _keep_sound(self, window: ShownRate) -> None:
        is_sound = not any(
            missed.replicas >= window.replicas
            and missed.rate_per_second <= window.rate_per_second
            and window.covers(missed.input_tokens, missed.output_tokens)
            for _, missed in self._bad
        )
        if is_sound and _keep_extremes(self._best, window, worst=False):
            self._sound = None

    def sound(self) -> list[ShownRate]:
        """Returns the best windows until now that none contradicts, the highest rate first."""
        if self._sound is None:
            self._sound = [window for _, window in sorted(self._best, key=lambda entry: entry[0], reverse=True)]
        return self._sound


def _window(series: WorkloadSeries, steps: range, *, is_kept: bool) -> Iterator[ShownRate]:
    """Gives what the window shows, read so that it shows least: of a kept one its lows, of a missed one its means."""
    rates, ready = [], []
    for step in steps:
        rate, replicas = series.rates_per_second[step], series.ready_replicas[step]
        if not rate or not replicas:
            return
        rates.append(rate / replicas)
        ready.append(int(replicas))
    lengths = [
        [value_at(tokens, step) for step in steps] if tokens else None
        for tokens in (series.input_tokens, series.output_tokens)
    ]
    ends: list[float | None] = []
    for values in lengths:
        known = [value for value in values or () if value is not None]
        if values is not None and len(known) < len(values):
            if is_kept:
                return
            known = [0.0]  # requests of any length may have missed
        ends.append((min(known) if is_kept else max(known)) if known else None)
    rate = min(rates) if is_kept else sum(rates) / len(rates)
    yield ShownRate(rate, max(ready) if is_kept else min(ready), ends[0], ends[1], steps[0])


def _keep_extremes(front: _Front, window: ShownRate, *, worst: bool) -> bool:
    """Adds a window unless another makes it superfluous, and drops those that it makes so: the best, or the worst.

    Returns whether it was added.
    """
    sign = -1 if worst else 1
    mine = (
        sign * window.rate_per_second, -sign * window.replicas, sign * (window.input_tokens or 0),
        sign * (window.output_tokens or 0),
    )  # fmt: skip
    if any(all(its >= own for its, own in zip(other, mine, strict=True)) for other, _ in front):
        return False
    front[:] = [entry for entry in front if not all(own >= its for its, own in zip(entry[0], mine, strict=True))]
    front.append((mine, window))
    return True
