"""Samples of a rate, cleaned of values that no sound counter can report."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter, lt

MOST_RATE = 1e9  # a second; a higher rate is a broken counter
LEAST_SECONDS = 1e-3
LATEST = 1e12  # seconds

_AT, _SECONDS, _REQUESTS = attrgetter("at"), attrgetter("seconds"), attrgetter("requests")


@dataclass(frozen=True, slots=True)
class Sample:
    """The requests counted in the `seconds` before `at`."""

    at: float  # in seconds since any fixed moment
    seconds: float
    requests: float

    @property
    def rate_per_second(self) -> float:
        return self.requests / self.seconds


def usable(samples: Iterable[Sample]) -> list[Sample]:
    """Returns the valid samples in order of time, and only the first of several for the same moment."""
    sound = [
        sample
        for sample in samples  # NaN and infinities fail these comparisons as well
        if LEAST_SECONDS <= sample.seconds <= LATEST
        and 0 <= sample.requests <= MOST_RATE * sample.seconds
        and -LATEST <= sample.at <= LATEST
    ]
    ats = [sample.at for sample in sound]
    if all(map(lt, ats, ats[1:])):
        return sound
    by_moment = {sample.at: sample for sample in reversed(sound)}
    return [by_moment[at] for at in sorted(by_moment)]


def lower_lone_leaps(samples: Sequence[Sample], leap: float, witness_seconds: float) -> list[Sample]:
    """Lowers a short sample that leaps above both neighbours to their level: a single bad count is not a load.

    The newest sample has only one neighbour, so a sudden load counts from its second sample on; a gradual load counts
    from its first.
    """
    calm = list(samples)
    rates = [sample.requests / sample.seconds for sample in samples]
    for here, (before, rate) in enumerate(pairwise(rates), start=1):
        if rate <= leap * before:  # nearly always
            continue
        around = max(before, rates[here + 1] if here + 1 < len(rates) else 0.0)
        if rate > leap * around > 0 and samples[here].seconds < witness_seconds:
            calm[here] = replace(samples[here], requests=around * samples[here].seconds)
    return calm


def select_since(samples: Sequence[Sample], moment: float) -> Sequence[Sample]:
    """Returns the samples that ended after this moment, of samples in order of time."""
    return samples[bisect_right(samples, moment, key=_AT) :]


def seconds_of(samples: Iterable[Sample]) -> float:
    """Returns the time that the samples cover."""
    seconds: float = sum(map(_SECONDS, samples))
    return seconds


def mean_rate(samples: Sequence[Sample]) -> float:
    """Returns the mean rate over all samples, 0 if there are none."""
    seconds = seconds_of(samples)
    requests: float = sum(map(_REQUESTS, samples))
    return requests / seconds if seconds > 0 else 0.0
