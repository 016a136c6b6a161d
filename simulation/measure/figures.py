"""Sums up what was measured: pure functions from samples to the figures of `gpuwright simulate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import fsum, inf

ABOVE_SHARE = 1.25  # of a fresh plan's cost; more is counted in minutes


@dataclass(frozen=True, slots=True)
class CostMoment:
    """The cost of the fleet an hour from this second on, until the next moment."""

    at: float
    held: float
    planned: float
    is_waiting: bool  # changes wait, and nothing that they could wait for is under way


@dataclass(frozen=True, slots=True)
class FreshMoment:
    """The least known cost an hour and its bound from this second on, for the planned rates and for those that came."""

    at: float
    fresh: float
    bound: float
    fresh_in_hindsight: float
    bound_in_hindsight: float


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Requests of a service that have ended, in total."""

    ended: int
    within: int  # of the SLO
    shed: int  # turned away by the gateway, or no copy was there
    answered: int
    accuracy_sum: float  # of those answered

    def since(self, before: RequestCounts) -> RequestCounts:
        return RequestCounts(
            self.ended - before.ended,
            self.within - before.within,
            self.shed - before.shed,
            self.answered - before.answered,
            self.accuracy_sum - before.accuracy_sum,
        )

    @property
    def attained_share(self) -> float:
        return self.within / self.ended if self.ended else 1.0


@dataclass(slots=True)
class RunSamples:
    """Everything measured between two moments, in the order of time."""

    began: float
    ended: float = 0.0
    costs: list[CostMoment] = field(default_factory=list)
    fresh: list[FreshMoment] = field(default_factory=list)
    counts: list[tuple[float, Mapping[str, RequestCounts]]] = field(default_factory=list)  # first, hourly, last


def cost_figures(samples: RunSamples) -> dict[str, float]:
    """Returns costs as means over time: each moment holds until the next, the last until the end."""
    costs, fresh, until = samples.costs, samples.fresh, samples.ended
    above = measure_above_seconds(samples)
    return {
        "heldPerHour": _round(time_mean([(moment.at, moment.held) for moment in costs], until)),
        "plannedPerHour": _round(time_mean([(moment.at, moment.planned) for moment in costs], until)),
        "freshPerHour": _round(time_mean([(moment.at, moment.fresh) for moment in fresh], until)),
        "boundPerHour": _round(time_mean([(moment.at, moment.bound) for moment in fresh], until)),
        "freshInHindsightPerHour": _round(
            time_mean([(moment.at, moment.fresh_in_hindsight) for moment in fresh], until)
        ),
        "boundInHindsightPerHour": _round(
            time_mean([(moment.at, moment.bound_in_hindsight) for moment in fresh], until)
        ),
        "minutesAboveFresh125": round(fsum(above) / 60, 2),
        "longestMinutesAboveFresh125": round(max(above, default=0.0) / 60, 2),
        "waitingMinutes": round(
            fsum(seconds for moment, seconds in _durations(costs, until) if moment.is_waiting) / 60, 2
        ),
    }


def request_figures(samples: RunSamples) -> dict[str, object]:
    """Returns the requests of all services, and how each service fared: in all, and in its worst hour."""
    (_, first), (_, last) = samples.counts[0], samples.counts[-1]
    whole = {name: last[name].since(first[name]) for name in sorted(last)}
    ended, within, shed = (
        sum(getattr(counts, what) for counts in whole.values()) for what in ("ended", "within", "shed")
    )
    attainment = {
        name: {
            "share": round(counts.attained_share, 6),
            "worstHour": round(min(_hourly_shares(samples, name), default=1.0), 6),
        }
        for name, counts in whole.items()
    }
    return {
        "requests": ended,
        "lateRequests": ended - within - shed,
        "shedRequests": shed,
        "attainment": attainment,
        "accuracy": {
            name: round(counts.accuracy_sum / counts.answered, 6) for name, counts in whole.items() if counts.answered
        },
    }


def time_mean(points: Sequence[tuple[float, float]], until: float) -> float:
    """Returns the mean of a step function; 0 if it has no duration."""
    if not points or until <= points[0][0]:
        return 0.0
    ends = [at for at, _ in points[1:]] + [until]
    total = fsum(value * (end - at) for (at, value), end in zip(points, ends, strict=True))
    return total / (until - points[0][0])


def measure_above_seconds(samples: RunSamples) -> list[float]:
    """Returns the durations in which the fleet was held above 1.25 times a fresh plan's cost without a break."""
    held = {moment.at: moment.held for moment in samples.costs}
    fresh = {moment.at: moment.fresh for moment in samples.fresh}
    moments = sorted({*held, *fresh})
    found: list[float] = []
    now_held, now_fresh, was_above = 0.0, inf, False
    for at, until in pairwise([*moments, samples.ended]):
        now_held, now_fresh = held.get(at, now_held), fresh.get(at, now_fresh)
        is_above = now_held > ABOVE_SHARE * now_fresh
        if is_above and was_above:
            found[-1] += until - at
        elif is_above:
            found.append(until - at)
        was_above = is_above
    return found


def _durations(costs: Sequence[CostMoment], until: float) -> list[tuple[CostMoment, float]]:
    ends = [moment.at for moment in costs[1:]] + [until]
    return [(moment, end - moment.at) for moment, end in zip(costs, ends, strict=True)] if costs else []


def _hourly_shares(samples: RunSamples, service: str) -> list[float]:
    counts = [found[service] for _, found in samples.counts]
    return [after.since(before).attained_share for before, after in pairwise(counts)]


def _round(value: float) -> float:
    return round(value, 6)
