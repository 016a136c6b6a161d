"""Samples of a rate, cleaned of values that no sound counter can report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import lt

MOST_RATE = 1e9  # a second; a higher rate is a broken counter
LEAST_SECONDS = 1e-3
LATEST = 1e12  # seconds


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


def without_lone_leaps(samples: Sequence[Sample], leap: float, witness_seconds: float) -> list[Sample]:
    """Lowers a short sample that leaps above both neighbours to their level: a single bad count is not a load.

    The newest sample has only one neighbour, so a sudden load counts from its second sample on; a gradual load counts
    from its first.
    """
    calm = list(samples)
    rates = [sample.requests / sample.seconds for sample in samples]
    for here in range(1, len(samples)):
        around = max(rates[here - 1], rates[here + 1] if here + 1 < len(rates) else 0.0)
        if rates[here] > leap * around > 0 and samples[here].seconds < witness_seconds:
            calm[here] = replace(samples[here], requests=around * samples[here].seconds)
    return calm


def since(samples: Sequence[Sample], moment: float) -> Sequence[Sample]:
    """Returns the samples that ended after this moment."""
    first = len(samples)
    while first and samples[first - 1].at > moment:
        first -= 1
    return samples[first:]


def mean_rate(samples: Sequence[Sample]) -> float:
    """Returns the mean rate over all samples, 0 if there are none."""
    seconds = sum(sample.seconds for sample in samples)
    return sum(sample.requests for sample in samples) / seconds if seconds > 0 else 0.0
