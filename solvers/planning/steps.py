"""Rates rounded in steps: what all of a service's instances fill together at least, whatever the rate of each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RateSteps:
    """Ways of rounding a service's rates, a row of the linear programme each.

    A rate of r fills floor(r / length) steps, and of the next one as much as it has of the rise at its start. Two rates
    fill no fewer steps than their sum. Of length 0 every instance fills one, and a plan has at least `least`, or none.

    With `spare`, a row counts what instances could carry when a node is lost, too: so many steps for a request a
    second. Without any one of at most `nodes` nodes, what is left must then carry all: see `surviving`.
    """

    service: Ints
    length: Floats
    rise: Floats  # a part of the length
    least: Floats  # steps that all of the rate fills
    spare: Floats  # steps of a request a second that an instance could carry; 0: they do not count
    nodes: Ints  # that may run the service, where `spare` counts

    @classmethod
    def of_rates(cls, service: Ints, length: Floats, rise: Floats, least: Floats) -> RateSteps:
        """Returns rows that count no spare capacity."""
        return cls(service, length, rise, least, np.zeros(len(service)), np.zeros(len(service), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.service)

    def plus(self, other: RateSteps) -> RateSteps:
        """Returns these and the others."""
        return RateSteps(
            np.concatenate([self.service, other.service]),
            np.concatenate([self.length, other.length]),
            np.concatenate([self.rise, other.rise]),
            np.concatenate([self.least, other.least]),
            np.concatenate([self.spare, other.spare]),
            np.concatenate([self.nodes, other.nodes]),
        )

    def at(self, places: Ints) -> RateSteps:
        """Returns some of these."""
        return RateSteps(
            self.service[places], self.length[places], self.rise[places], self.least[places], self.spare[places],
            self.nodes[places],
        )  # fmt: skip

    def scaled(self, factor: Floats) -> RateSteps:
        """Returns these with lengths times a factor a service: any rate fills what it did before, over the factor."""
        by = factor[self.service]
        return replace(self, length=self.length * by, spare=self.spare / by)

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
        found = np.where(is_less, 2.0 * LEAST_LARGE, found)
        return np.where(self.spare > 0.0, surviving(self.spare * rate, self.nodes), found)


def surviving(spare: Floats, nodes: Ints) -> Floats:
    """Returns the least that K >= 2 nodes fill: a step each, and K / (K - 1) of what must be left without any of them.

    K + spare x K / (K - 1) is convex in K, and least where (K - 1)^2 = spare.
    """
    most = np.maximum(nodes - 1.0, 1.0)
    fewer = np.clip(np.floor(np.sqrt(spare)), 1.0, most)
    others = np.minimum(fewer + 1.0, most)
    least = np.minimum(fewer + spare / fewer, others + spare / others)
    return np.asarray(SURVIVING_SHARE * (1.0 + spare + least), dtype=np.float64)


LEAST_LARGE = 0.25  # of a step, by any instance of a service with two large ones
LARGE_SHARE = 1 - 1e-6  # of two steps: such instances fill less by no more than the judge's tolerance allows
SURVIVING_SHARE = 1 - 1e-6  # of what must be left: sums of floats may lack less
NO_STEPS = RateSteps.of_rates(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), np.zeros(0))


@dataclass(frozen=True, slots=True)
class Worths:
    """The worth of serving parts of services, and the cost of the rest unserved."""

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


def worths(
    price: Floats, need: Floats, unserved_price: Floats, steps: RateSteps, step_price: Floats, least: float = 1.0
) -> Worths:  # fmt: skip
    """Returns the worth of the served part of each service's rate wherever the least sum can be.

    Unserved u costs price x max(u, least) for any u > 0, and worth never falls with the rate. So the least is at u = 0,
    at u = least, with all unserved, or where a step begins: between those both are linear, or the worth is concave.
    """
    services = np.arange(len(need))
    priced = steps.at(np.flatnonzero(step_price > 0.0))
    who, rate = _step_begins(need, priced)
    who, rate = np.concatenate([services, services, who]), np.concatenate([need, need - least, rate])
    is_first = np.arange(len(who)) < len(need)
    is_there = is_first | ((rate > 0.0) & (rate <= need[who] - least))
    who, rate, is_first = who[is_there], rate[is_there], is_first[is_there]
    worth = price[who] * rate + _steps_worth(who, rate, priced, step_price[step_price > 0.0])
    unserved = np.where(is_first, 0.0, unserved_price[who] * (need[who] - rate))
    return Worths(
        np.concatenate([who, services]),
        np.concatenate([worth, np.zeros(len(need))]),
        np.concatenate([unserved, unserved_price * np.maximum(need, least)]),
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
