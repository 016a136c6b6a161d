"""What was counted: samples of a rate, cleaned of what no counter can have said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import lt

MOST_RATE = 1e9  # a second; more is a counter that lies
LEAST_SECONDS = 1e-3
LATEST = 1e12  # seconds


@dataclass(frozen=True, slots=True)
class Sample:
    """Requests that were counted in the `seconds` before `at`."""

    at: float  # seconds since any beginning
    seconds: float
    requests: float

    @property
    def rate_per_second(self) -> float:
        return self.requests / self.seconds


def usable(samples: Iterable[Sample]) -> list[Sample]:
    """In order of time, without what is no amount, and without a second word on the same moment."""
    sound = [
        sample
        for sample in samples  # False of NaN and infinities, too
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
    """A short sample that stands alone above its neighbours counts as they do: one bad count is no load.

    The newest has one neighbour only, so a sudden load is believed at its second sample; a gradual one at its first.
    """
    calm = list(samples)
    rates = [sample.requests / sample.seconds for sample in samples]
    for here in range(1, len(samples)):
        around = max(rates[here - 1], rates[here + 1] if here + 1 < len(rates) else 0.0)
        if rates[here] > leap * around > 0 and samples[here].seconds < witness_seconds:
            calm[here] = replace(samples[here], requests=around * samples[here].seconds)
    return calm


def since(samples: Sequence[Sample], moment: float) -> Sequence[Sample]:
    """Those that ended after a moment."""
    first = len(samples)
    while first and samples[first - 1].at > moment:
        first -= 1
    return samples[first:]


def mean_rate(samples: Sequence[Sample]) -> float:
    """Over all of them; 0 of none."""
    seconds = sum(sample.seconds for sample in samples)
    return sum(sample.requests for sample in samples) / seconds if seconds > 0 else 0.0
