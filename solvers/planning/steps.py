"""Rates rounded in steps: what all of a service's instances fill together at least, whatever the rate of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RateSteps:
    """Ways of rounding a service's rates, a row of the linear programme each.

    A rate of r fills floor(r / length) steps, and of the next one as much as it has of the rise at its start. Two rates
    fill no fewer steps than their sum. Of length 0 every instance fills one, and a plan has at least `least`, or none.
    """

    service: Ints
    length: Floats
    rise: Floats  # a part of the length
    least: Floats  # steps that all of the rate fills

    def __len__(self) -> int:
        return len(self.service)

    def plus(self, other: RateSteps) -> RateSteps:
        """Returns these and the others."""
        return RateSteps(
            np.concatenate([self.service, other.service]),
            np.concatenate([self.length, other.length]),
            np.concatenate([self.rise, other.rise]),
            np.concatenate([self.least, other.least]),
        )

    def at(self, places: Ints) -> RateSteps:
        """Returns some of these."""
        return RateSteps(self.service[places], self.length[places], self.rise[places], self.least[places])

    def scaled(self, factor: Floats) -> RateSteps:
        """Returns these with lengths times a factor a service: any rate fills what it did before, over the factor."""
        return RateSteps(self.service, self.length * factor[self.service], self.rise, self.least)

    def filled(self, rate: Floats) -> Floats:
        """Returns the steps that rates above 0 fill; the last axis has an entry for each of these."""
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = rate / self.length
            whole = np.floor(parts)
            found: Floats = np.where(
                self.length > 0.0, whole + np.minimum(1.0, (parts - whole) / self.rise), self.least
            )
        # Two large instances of less than all of the rate may be small: any two fill so much.
        is_less = (self.length < 0.0) & (rate < -self.length * (1.0 - 1e-9))
        return np.where(is_less, 2.0 * LEAST_LARGE, found)


LEAST_LARGE = 0.25  # of a step, by any instance of a service with two large ones
LARGE_SHARE = 1 - 1e-6  # of two steps: such instances fill less by no more than the judge's tolerance allows
NO_STEPS = RateSteps(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), np.zeros(0))


@dataclass(frozen=True, slots=True)
class Worths:
    """What serving parts of services is worth, and what the rest costs unserved."""

    service: Ints
    worth: Floats
    unserved: Floats

    def least(self, factor: Floats, services: int) -> Floats:
        """Returns the least sum of each service if all worths are multiplied by a factor: [factor, service]."""
        order = np.argsort(self.service, kind="stable")
        begins = np.flatnonzero(np.diff(self.service[order], prepend=-1))
        sums = (factor[:, None] * self.worth + self.unserved)[:, order]
        found: Floats = np.minimum.reduceat(sums, begins, axis=1) if services else np.zeros((len(factor), 0))
        return found


def worths(price: Floats, need: Floats, unserved_price: Floats, steps: RateSteps, step_price: Floats) -> Worths:
    """Returns the worth of the served part of each service's rate wherever the least sum can be.

    Unserved u costs price x max(u, 1) for any u > 0, and worth never falls with the rate. So the least is at u = 0, at
    u = 1, with all unserved, or where a step begins: between those both are linear, or the worth is concave.
    """
    services = np.arange(len(need))
    priced = steps.at(np.flatnonzero(step_price > 0.0))
    who, rate = _step_begins(need, priced)
    who, rate = np.concatenate([services, services, who]), np.concatenate([need, need - 1.0, rate])
    is_first = np.arange(len(who)) < len(need)
    is_there = is_first | ((rate > 0.0) & (rate <= need[who] - 1.0))
    who, rate, is_first = who[is_there], rate[is_there], is_first[is_there]
    worth = price[who] * rate + _steps_worth(who, rate, priced, step_price[step_price > 0.0])
    unserved = np.where(is_first, 0.0, unserved_price[who] * (need[who] - rate))
    return Worths(
        np.concatenate([who, services]),
        np.concatenate([worth, np.zeros(len(need))]),
        np.concatenate([unserved, unserved_price * np.maximum(need, 1.0)]),
    )


def _step_begins(need: Floats, steps: RateSteps) -> tuple[Ints, Floats]:
    """Returns the services and rates at which whole steps are full, up to what each service needs."""
    long = np.flatnonzero(steps.length > 0.0)
    count = np.maximum(np.ceil(need[steps.service[long]] / steps.length[long]).astype(np.int64) - 1, 0)
    place = np.repeat(long, count)
    number = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count) + 1
    return steps.service[place], number * steps.length[place]


def _steps_worth(who: Ints, rate: Floats, steps: RateSteps, step_price: Floats) -> Floats:
    """Returns what the steps of its service that each rate fills are worth: only these are looked at."""
    order = np.argsort(steps.service, kind="stable")
    first = np.searchsorted(steps.service[order], who)
    count = np.searchsorted(steps.service[order], who, side="right") - first
    entry = np.repeat(np.arange(len(who)), count)
    place = order[np.arange(len(entry)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)]
    filled = steps.at(place).filled(rate[entry]) * step_price[place]
    return np.bincount(entry, filled, minlength=len(who)).astype(np.float64)
