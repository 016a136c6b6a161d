"""The search for what to rent: plans propose, simulations decide, and one GPU less must fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from simulation.sizing.planned import LoadTooLarge, RentalPlanner, UncarriedMoment
from simulation.sizing.rental import Rental, RentalMarket
from simulation.sizing.trial import RentalTrial, TryRental

HEADROOM_STEP, MOST_HEADROOM_STEPS = 0.05, 20  # of each rate; the planner of a fleet plans for 5 to 15 % more
MOST_STALLED, BETTER_SHARE = 2, 0.95  # so many larger rentals that fail no less than this share of the least: enough
Say = Callable[[str], None]


@dataclass(slots=True)
class RentalSearch:
    """Proposes rentals and keeps what became of them."""

    planner: RentalPlanner
    market: RentalMarket
    try_rental: TryRental
    simulations: int
    say: Say
    trials: dict[Rental, RentalTrial] = field(default_factory=dict)
    best: RentalTrial | None = None
    one_less_fails: bool = False
    more_helps: bool = True  # False: larger rentals failed in the same way
    shed_anyway: int = 0  # requests that larger rentals turn away, too: their load rises faster than copies start

    def run(self) -> None:
        """Fills `trials`, and `best` where a simulation confirmed a rental. Raises LoadTooLarge."""
        first = self.planner.cheapest()
        self.best = self._rise(first)
        if self.best:
            self._descend()

    def is_kept(self, trial: RentalTrial) -> bool:
        """Returns whether the rental kept every SLO, and turned away no request that more GPUs would have served."""
        return trial.carries_all and trial.shed <= self.shed_anyway

    def _rise(self, rental: Rental) -> RentalTrial | None:
        """Returns the first rental that is kept, of those that carry more and more than the load."""
        step = stalled = 0
        least = inf
        proposed: Rental | None = rental
        while proposed is not None and self._may_simulate:
            trial = self._try(proposed)
            if self.is_kept(trial):
                return trial
            stalled = 0 if trial.missed_requests < BETTER_SHARE * least else stalled + 1
            least = min(least, trial.missed_requests)
            if stalled == MOST_STALLED:
                return self._kept_anyway()
            proposed, step = self._larger(proposed, step)
        return None

    def _kept_anyway(self) -> RentalTrial | None:
        """Returns the cheapest rental that turned away no more requests than larger ones did."""
        carrying = [trial for trial in self.trials.values() if trial.carries_all]
        if not carrying:
            self.more_helps = False
            return None
        self.shed_anyway = int(min(trial.shed for trial in carrying) / BETTER_SHARE)
        self.say(f"  larger rentals turn away as many: up to {self.shed_anyway} count as load that rises too fast")
        return min(filter(self.is_kept, carrying), key=lambda trial: trial.price_per_hour)

    def _larger(self, rental: Rental, step: int) -> tuple[Rental | None, int]:
        """Returns the next rental to try and its headroom in steps; None where nothing more can be rented."""
        price = self.market.price(rental)
        while step < MOST_HEADROOM_STEPS:
            step += 1
            try:
                found = self.planner.cheapest(1 + HEADROOM_STEP * step)
            except LoadTooLarge:
                break
            if self.market.price(found) > price and found not in self.trials:
                return found, step
        return self._add_cheapest(rental), MOST_HEADROOM_STEPS

    def _add_cheapest(self, rental: Rental) -> Rental | None:
        """Returns the rental with one more GPU, of the cheapest type that runs a service which it failed."""
        failed = set(self.trials[rental].missed) or set(self.trials[rental].services)
        usable = self.market.usable_by(failed)
        left = [name for name in usable if rental.by_type.get(name, 0) < self.market.most[name]]
        cheapest = min(left, key=lambda name: (self.market.price_per_hour[name], name), default=None)
        return rental.changed(cheapest, 1) if cheapest else None

    def _descend(self) -> None:
        """Leaves out one GPU after the other, the dearest types first, until each one less has failed."""
        while self.best:
            smaller = [self.best.rental.changed(name, -1) for name in self.market.dearest_first(self.best.rental)]
            untried = [rental for rental in smaller if rental not in self.trials and self.market.has_gpus(rental)]
            if not untried:
                self.one_less_fails = True
                return
            if uncarried := self.planner.uncarried(untried[0]):
                self._refuse(untried[0], uncarried)
            elif not self._may_simulate:
                return
            elif self.is_kept(trial := self._try(untried[0])):
                self.best = trial

    def _try(self, rental: Rental) -> RentalTrial:
        price = self.market.price(rental)
        self.say(f"simulation {self._simulated + 1} of at most {self.simulations}: {rental}, {price:.6g} an hour")
        trial = self.try_rental(rental)
        self.trials[rental] = trial
        self.say(f"  {'every SLO is kept' if self.is_kept(trial) else trial.why_not}")
        return trial

    def _refuse(self, rental: Rental, uncarried: UncarriedMoment) -> None:
        price = self.market.price(rental)
        self.trials[rental] = RentalTrial(rental, price, {}, 0, 0, 0, uncarried)
        self.say(f"{rental}, {price:.6g} an hour: {self.trials[rental].why_not}")

    @property
    def _simulated(self) -> int:
        return sum(trial.uncarried is None for trial in self.trials.values())

    @property
    def _may_simulate(self) -> bool:
        return self._simulated < self.simulations


def figures_of(search: RentalSearch) -> dict[str, Any]:
    """Returns what was found as the fields of `gpuwright size --json`."""
    best, market = search.best, search.market
    chosen = best or min(search.trials.values(), key=_nearest, default=None)
    rental = chosen.rental if chosen else Rental()
    return {
        "gpus": rental.by_type,
        "costPerHour": round(market.price(rental), 6) if chosen else None,
        "boundPerHour": round(search.planner.bound_per_hour, 6),
        "attainment": _attainment(chosen) if chosen else {},
        "confirmedBySimulation": best is not None,
        "oneLessFails": search.one_less_fails,
        "moreHelps": search.more_helps,
        "shedAnyway": search.shed_anyway,
        "tried": [_write_trial(trial, search.is_kept(trial)) for trial in search.trials.values()],
    }


def _nearest(trial: RentalTrial) -> tuple[float, float]:
    return trial.missed_requests, trial.price_per_hour


def _write_trial(trial: RentalTrial, is_kept: bool) -> dict[str, object]:
    return {
        "gpus": trial.rental.by_type,
        "costPerHour": round(trial.price_per_hour, 6),
        "attainment": _attainment(trial),
        "requests": trial.requests,
        "lateRequests": trial.late,
        "shedRequests": trial.shed,
        "simulated": trial.uncarried is None,
        "kept": is_kept,
        "why": "" if is_kept else trial.why_not,
    }


def _attainment(trial: RentalTrial) -> Mapping[str, Mapping[str, float]]:
    return {name: {"share": service.share, "worstHour": service.worst_hour} for name, service in trial.services.items()}
