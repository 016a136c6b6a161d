"""Tries a rental: the real planner runs the fleet that has it under the whole trace, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from simulation.limits import WARM_UP_MINUTES
from simulation.measure.rates import RateCurve
from simulation.measure.run import Say, SimulationOrder, simulate
from simulation.own_databases import EmptyDatabases
from simulation.shapes import Shape
from simulation.sizing.moments import LEAST_RATE, trace_seconds
from simulation.sizing.planned import UncarriedMoment
from simulation.sizing.rental import Rental, RentalMarket
from solvers.planning.problem import Service

LEAST_TRACE_SECONDS = 60.0
LOWEST_SHARE = 0.02  # of a service's highest rate: the least that is declared of it
MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class SimulatedService:
    """The result of a service in a simulation: the share of requests within the SLO, in all and in its worst hour."""

    share: float
    worst_hour: float
    promised: float

    @property
    def is_kept(self) -> bool:
        return self.share >= self.promised


@dataclass(frozen=True, slots=True)
class RentalTrial:
    """A rental that was simulated, or that plans refused before."""

    rental: Rental
    price_per_hour: float
    services: Mapping[str, SimulatedService]
    requests: int
    late: int
    shed: int
    uncarried: UncarriedMoment | None = None  # what plans refused it for, without a simulation

    @property
    def missed(self) -> tuple[str, ...]:
        return tuple(name for name, service in sorted(self.services.items()) if not service.is_kept)

    @property
    def missed_requests(self) -> float:
        """Returns how far it is from keeping all: the requests turned away, and a part of all requests for lateness.

        That part is the sum of what each service misses of its percentile, so that a small service counts, too.
        """
        beyond = sum(max(0.0, service.promised - service.share) for service in self.services.values())
        return self.shed + beyond * self.requests

    @property
    def carries_all(self) -> bool:
        """Returns whether plans carry every moment, and the simulation kept every SLO at its percentile."""
        return self.uncarried is None and not self.missed

    @property
    def why_not(self) -> str:
        """Returns what refuses the rental; empty where nothing does."""
        if self.uncarried:
            return f"no right plan carries it: {self.uncarried.words}"
        words = [f"{self.shed} of {self.requests} requests were turned away"] if self.shed else []
        for name in self.missed[:MOST_NAMED]:
            service = self.services[name]
            words.append(f"{name} kept its SLO for {100 * service.share:.2f} % and not {100 * service.promised:g} %")
        if len(self.missed) > MOST_NAMED:
            words.append(f"{len(self.missed) - MOST_NAMED} more services missed theirs")
        return "; ".join(words)


TryRental = Callable[[Rental], RentalTrial]


@dataclass(frozen=True)
class TraceSimulator:
    """Simulates rentals under one trace: five minutes at its first rates, which do not count, and then all of it."""

    market: RentalMarket
    curves: Mapping[str, RateCurve]
    services: Mapping[str, Service]  # with their declared rates
    databases: EmptyDatabases
    seed: int
    work: int
    say: Say

    def try_rental(self, rental: Rental) -> RentalTrial:
        """Returns how the rental did."""
        declared = {name: self._find_declared_rate(service) for name, service in self.services.items()}
        shapes = {name: _shape(curve, declared[name]) for name, curve in self.curves.items()}
        seconds = 60 * WARM_UP_MINUTES + max(trace_seconds(self.curves), LEAST_TRACE_SECONDS)
        world = self.market.fleet(rental, declared)
        order = SimulationOrder(world, shapes, seconds / 3600, self.seed, self.work, is_compared=False)
        with self.databases.one() as url:
            figures = simulate(url, order, self.say).figures
        return self._trial(rental, figures)

    def _find_declared_rate(self, service: Service) -> float:
        """Returns the lowest rate of the trace: a planner keeps room for the declared rate in its first half hour."""
        curve = self.curves.get(service.name)
        if curve is None:
            return service.rate_per_second
        return max(LEAST_RATE, LOWEST_SHARE * max(curve.rates), min(curve.rates))

    def _trial(self, rental: Rental, figures: Mapping[str, Any]) -> RentalTrial:
        services = {
            name: SimulatedService(found["share"], found["worstHour"], self.services[name].percentile / 100)
            for name, found in figures["attainment"].items()
        }
        price = self.market.price(rental)
        late, shed = figures["lateRequests"], figures["shedRequests"]
        return RentalTrial(rental, price, services, figures["requests"], late, shed)


def _shape(curve: RateCurve, declared: float) -> Shape:
    return lambda seconds: curve.at(max(0.0, seconds - 60 * WARM_UP_MINUTES)) / declared
