"""Finds by plans alone the cheapest rental that carries every moment of a load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from simulation.measure.fresh import serves_all, set_rates
from simulation.sizing.moments import LoadMoment
from simulation.sizing.rental import Rental, RentalMarket
from solvers.planning.judge.billing import PAID_SHARE, whole_price
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget, find

WORK_FACTOR = 10  # times the work of a cycle, where the first plan is not enough
MOST_KNOWN_PLANS = 50
MOST_STARTS = 3  # moments from which a rental grows
ROUNDING_SHARE = 1e-6  # of a price


@dataclass(frozen=True, slots=True)
class UncarriedMoment:
    """A moment that a rental does not carry, and what its plan leaves unserved."""

    seconds: float
    unserved: tuple[Unserved, ...]
    least_per_hour: float = 0.0  # that rentals cost which carry it, where that alone refuses this one

    @property
    def words(self) -> str:
        if not self.unserved:
            least = f"{self.least_per_hour:.4g} an hour"
            return f"by proof the rates at second {self.seconds:g} take GPUs for at least {least}"
        lacking = ", ".join(f"{entry.rate_per_second:.4g} requests/s of {entry.service}" for entry in self.unserved)
        return f"at second {self.seconds:g} its plan leaves {lacking} unserved"


class LoadTooLarge(Exception):
    """All that may be rented does not carry a moment of the load."""

    def __init__(self, moment: UncarriedMoment) -> None:
        super().__init__(moment.words)
        self.moment = moment


class RentalPlanner:
    """Plans the moments of a load on rentals; `moments` begin with the most expensive."""

    def __init__(self, market: RentalMarket, moments: Sequence[LoadMoment], work: int, seed: int) -> None:
        self._market = market
        self._moments = moments
        self._first, self._full = SolveBudget(None, work, seed), SolveBudget(None, WORK_FACTOR * work, seed)
        self._known: list[Plan] = []  # the newest last
        self._answers: dict[tuple[Rental, float, float], UncarriedMoment | None] = {}  # by second and factor
        self._bounds: dict[tuple[float, float], float] = {}  # of rentals, by a moment's second and its factor
        self.bound_per_hour = 0.0  # of any rental that carries the load

    def uncarried(self, rental: Rental, factor: float = 1.0) -> UncarriedMoment | None:
        """Returns a moment that no known plan carries on the rental, at so many times its rates; None if all are."""
        price = self._market.price(rental)
        for moment in self._moments:
            least = self._bounds.get((moment.seconds, factor), 0.0)
            if least > price * (1 + ROUNDING_SHARE):
                return UncarriedMoment(moment.seconds, (), least)
        return next(filter(None, (self._lacking(rental, moment, factor) for moment in self._moments)), None)

    def cheapest(self, factor: float = 1.0) -> Rental:
        """Returns the cheapest rental found that carries so many times each moment. Raises LoadTooLarge."""
        found: list[Rental] = []
        starts = [self._moments[0]]
        while len(found) < len(starts):
            first = starts[len(found)]
            rental, forced = self._grown([first, *(moment for moment in self._moments if moment != first)], factor)
            if lacking := self.uncarried(rental, factor):  # GPUs are not all that may limit: the power budget does
                raise LoadTooLarge(lacking)
            found.append(self._trim(rental, factor))
            starts += [moment for moment in forced if moment not in starts][: MOST_STARTS - len(starts)]
        return min(found, key=lambda rental: (self._market.price(rental), rental.gpus, rental.counts))

    def _grown(self, moments: Sequence[LoadMoment], factor: float) -> tuple[Rental, list[LoadMoment]]:
        """Returns a rental to which each moment added what it lacked, and the moments that added something."""
        rental, forced = Rental(), []
        for moment in moments:
            if self._lacking(rental, moment, factor):
                rental = self._add_cheapest(rental, moment, factor)
                forced.append(moment)
        return rental, forced

    def _add_cheapest(self, rental: Rental, moment: LoadMoment, factor: float) -> Rental:
        """Returns the rental with the cheapest addition that carries the moment."""
        rates = moment.times(factor)
        left = {name: most - rental.by_type.get(name, 0) for name, most in self._market.most.items()}
        counts = {name: min(count, left[name]) for name, count in self._market.useful(rates).items()}
        while True:
            problem = self._market.problem(rental, rates, counts)
            plan = find(problem, self._full, alone=True).plan
            if not plan.unserved or counts == left:
                break
            counts = {name: min(max(1, 2 * count), left[name]) for name, count in counts.items()}
        if plan.unserved:
            raise LoadTooLarge(UncarriedMoment(moment.seconds, plan.unserved))
        certificate = plan.certificate
        if not rental.counts and certificate and certificate.bound is not None:
            self._note_bound(moment, factor, max(0.0, certificate.bound - _paid_per_hour(problem)))
        names = _number_gpus(plan, problem, rental)
        added = Counter(problem.nodes[name].gpu_type for name in names)
        self._know(Plan(tuple(replace(line, node=names.get(line.node, line.node)) for line in plan.instances)))
        return Rental.of({name: rental.by_type.get(name, 0) + added[name] for name in self._market.most})

    def _trim(self, rental: Rental, factor: float) -> Rental:
        """Returns the rental with GPUs left out or changed for cheaper ones, as long as it carries every moment."""
        while True:
            cheaper = (other for other in self._neighbours(rental) if not self.uncarried(other, factor))
            better = next(cheaper, None)
            if better is None:
                return rental
            rental = better

    def _neighbours(self, rental: Rental) -> Iterator[Rental]:
        """Yields rentals with a GPU less, and with a cheaper type instead of one of its GPUs."""
        prices = self._market.price_per_hour
        for dear in self._market.dearest_first(rental):
            less = rental.changed(dear, -1)
            yield less
            for other in sorted(prices, key=lambda name: (prices[name], name)):
                if prices[other] < prices[dear] and less.by_type.get(other, 0) < self._market.most[other]:
                    yield less.changed(other, 1)

    def _lacking(self, rental: Rental, moment: LoadMoment, factor: float) -> UncarriedMoment | None:
        """Returns the moment with what its plan leaves unserved on the rental, if anything."""
        question = (rental, moment.seconds, factor)
        if question not in self._answers:
            self._answers[question] = self._plan(rental, moment, factor)
        return self._answers[question]

    def _plan(self, rental: Rental, moment: LoadMoment, factor: float) -> UncarriedMoment | None:
        problem = self._market.problem(rental, moment.times(factor))
        if not problem.nodes:
            return UncarriedMoment(moment.seconds, _all_of(problem))
        for known in reversed(self._known):
            scaled = set_rates(problem, known)
            if scaled and serves_all(problem, scaled):
                return None
        plan = find(problem, self._first, alone=True).plan
        if plan.unserved:
            plan = find(problem, self._full, alone=True).plan
        if plan.unserved:
            return UncarriedMoment(moment.seconds, plan.unserved)
        self._know(plan)
        return None

    def _know(self, plan: Plan) -> None:
        self._known = [*self._known, plan][-MOST_KNOWN_PLANS:]

    def _note_bound(self, moment: LoadMoment, factor: float, bound: float) -> None:
        self._bounds[moment.seconds, factor] = bound
        if factor == 1.0:
            self.bound_per_hour = max(self.bound_per_hour, bound)


def _paid_per_hour(problem: Problem) -> float:
    """Returns the most that GPUs which are paid anyway add to the cost of a plan, though nothing is rented for it."""
    return PAID_SHARE * sum(whole_price(node) for node in problem.nodes.values() if node.pricing == "paid")


def _number_gpus(plan: Plan, problem: Problem, rental: Rental) -> dict[str, str]:
    """Returns for each GPU that the plan adds to the rental the name that it has once it is rented."""
    used = {line.node for line in plan.instances}
    taken, names = Counter(rental.by_type), {}
    for name in sorted(used, key=lambda name: (len(name), name)):
        node = problem.nodes[name]
        if node.pricing == "gpu":
            taken[node.gpu_type] += 1
            names[name] = f"{name.rsplit('-', 1)[0]}-{taken[node.gpu_type]}"
    return names


def _all_of(problem: Problem) -> tuple[Unserved, ...]:
    return tuple(Unserved(name, service.rate_per_second) for name, service in sorted(problem.services.items()))
