"""Finds a Pareto front between money, energy and accuracy: plans of which none is worse than another in everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import fsum
from statistics import median

from app.control.answer.whatif.compare import FindPlan
from app.control.answer.whatif.wire import ObjectivePointWire
from app.control.domain.specs import Spec
from app.control.formulate.objective import grams_per_kwh, price_policy
from app.control.formulate.problem import planning_policy
from solvers.planning.judge.measures import PlanMeasures, mean_accuracy, measure
from solvers.planning.plan import Plan
from solvers.planning.problem import Policy, Problem, Service

ENERGY_STEPS = (0.3, 1.0, 3.0, 30.0)  # weights of energy, where 1 weighs it like the GPUs that draw it
ACCURATE_TRIES = 2
MONEY = {"money": 1.0, "energyKwh": 0.0}
MORE = 1e-4  # by which a measure is better; of measures above 1 as a share


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A plan found under an objective, and its measures."""

    weights: dict[str, float]
    plan: Plan
    measures: PlanMeasures
    money_per_hour: float  # GPUs, and energy and carbon at their prices
    carbon_kg: float | None  # None where no intensity is declared
    unserved_per_second: float
    names: tuple[str, ...] = ()  # the measures in which no plan found is better

    @property
    def axes(self) -> tuple[float, float, float, float]:
        """Returns the measures of which less is better."""
        accuracy = self.measures.accuracy or 0.0
        return (self.unserved_per_second, self.money_per_hour, self.measures.energy_kwh, -accuracy)

    def is_beaten_by(self, other: FrontPoint) -> bool:
        """Returns whether the other is better in something and worse in nothing."""
        pairs = [(mine, theirs, MORE * max(1.0, abs(mine))) for mine, theirs in zip(self.axes, other.axes, strict=True)]
        no_worse = all(theirs <= mine + least for mine, theirs, least in pairs)
        return no_worse and any(theirs < mine - least for mine, theirs, least in pairs)


def objective_front(problem: Problem, spec: Spec, now: datetime | None, solve: FindPlan) -> list[FrontPoint]:
    """Returns the plans, found under several objectives, that no other one beats; the cheapest comes first.

    `spec` is the policy's. Jobs and what runs now are left out, so that all plans are found alike.
    """
    services = {name: replace(service, unserved_weight=1.0) for name, service in problem.services.items()}
    bare = replace(problem, services=services, state=None, jobs={})
    found: list[FrontPoint] = []
    for weights in _list_weights(bare):
        plan = solve(_weigh(bare, spec, now, weights))
        if plan is not None:
            found.append(_point(bare, spec, now, weights, plan))
    if found:
        accurate = _accurate(_weigh(bare, spec, now, MONEY), found[0].plan, solve)
        found += [_point(bare, spec, now, MONEY, plan) for plan in accurate]
    most = min((point.unserved_per_second for point in found), default=0.0)
    served = [point for point in found if point.unserved_per_second <= most + MORE * max(1.0, most)]
    front = [point for point in served if not any(point.is_beaten_by(other) for other in served)]
    return sorted(_name_points(_distinct(front)), key=lambda point: point.axes[1:])


def wire(front: Sequence[FrontPoint]) -> list[ObjectivePointWire]:
    """Returns the front on the wire."""
    return [
        {
            "best": list(point.names),
            "weights": point.weights,
            "moneyPerHour": point.money_per_hour,
            "gpusPerHour": point.measures.gpus_per_hour,
            "energyKwh": point.measures.energy_kwh,
            "carbonKg": point.carbon_kg,
            "accuracy": point.measures.accuracy,
            "gpus": len({place for instance in point.plan.instances for place in instance.places}),
            "unservedPerSecond": point.unserved_per_second,
            "bound": point.plan.certificate.bound if point.plan.certificate else None,
        }
        for point in front
    ]


def _list_weights(problem: Problem) -> list[dict[str, float]]:
    """Returns weights from money alone to energy alone."""
    scale = _usual_price_of_energy(problem)
    between = [{"money": 1.0, "energyKwh": step * scale} for step in ENERGY_STEPS]
    return [MONEY, *between, {"money": 0.0, "energyKwh": 1.0}]


def _accurate(problem: Problem, cheap: Plan, solve: FindPlan) -> Iterator[Plan]:
    """Yields plans with a promise halfway from a cheap plan's accuracy, and with the most accurate variants alone.

    Services that these leave unserved have all their variants in the next.
    """
    services = {name: _most_accurate(problem, service) for name, service in problem.services.items()}
    if services == problem.services:
        return
    halfway = solve(replace(problem, services=dict(_halfway(problem, cheap))))
    if halfway is not None:
        yield halfway
    for _ in range(ACCURATE_TRIES):
        plan = solve(replace(problem, services=services))
        if plan is None:
            return
        yield plan
        if not plan.unserved:
            return
        services = {**services, **{line.service: problem.services[line.service] for line in plan.unserved}}


def _halfway(problem: Problem, cheap: Plan) -> Iterator[tuple[str, Service]]:
    """Yields services that promise a mean accuracy between that of the cheap plan and their best."""
    for name, service in problem.services.items():
        mean = mean_accuracy((line for line in cheap.instances if line.service == name), problem)
        best = _most_accurate(problem, service).variants
        known = {variant.name: variant.accuracy for variant in problem.models[service.model]}
        most = max((known[variant] for variant in best), default=0.0)
        promise = service.mean_accuracy if mean is None else max(service.mean_accuracy, (mean + most) / 2)
        yield name, replace(service, mean_accuracy=promise)


def _usual_price_of_energy(problem: Problem) -> float:
    """Returns the price of a kilowatt-hour at which a GPU at its most watts costs as much again as its price."""
    types = problem.gpu_types
    found = [node.price_per_hour * 1000 / max(types[node.gpu_type].max_w, 1.0) for node in problem.nodes.values()]
    return median(found) if found else 1.0


def _weigh(problem: Problem, spec: Spec, now: datetime | None, weights: dict[str, float]) -> Problem:
    return replace(problem, policy=_policy(problem.policy, spec, now, weights))


def _policy(policy: Policy, spec: Spec, now: datetime | None, weights: dict[str, float]) -> Policy:
    """Returns the problem's policy with other weights."""
    found = price_policy(planning_policy(spec), {**spec, "objective": weights}, now)
    return replace(policy, money_weight=found.money_weight, energy_price_per_kwh=found.energy_price_per_kwh)


def _most_accurate(problem: Problem, service: Service) -> Service:
    """Returns the service with the most accurate of its variants that has a profile."""
    profiled = {(profile.model, profile.variant) for profile in problem.profiles.values()}
    known = [
        variant for variant in problem.models[service.model]
        if variant.name in service.variants and (service.model, variant.name) in profiled
    ]  # fmt: skip
    best = max((variant.accuracy for variant in known), default=0.0)
    names = tuple(variant.name for variant in known if variant.accuracy == best)
    return replace(service, variants=names or service.variants)


def _point(problem: Problem, spec: Spec, now: datetime | None, weights: dict[str, float], plan: Plan) -> FrontPoint:
    measures = measure(problem, plan)
    prices = _policy(problem.policy, spec, now, {"money": 1.0})
    return FrontPoint(
        weights,
        plan,
        measures,
        money_per_hour=measures.gpus_per_hour + measures.energy_kwh * prices.energy_price_per_kwh,
        carbon_kg=measures.energy_kwh * grams_per_kwh(spec, now) / 1000 if spec.get("carbon") else None,
        unserved_per_second=fsum(line.rate_per_second for line in plan.unserved),
    )


def _distinct(points: Sequence[FrontPoint]) -> list[FrontPoint]:
    """Returns one point of each group with the same measures."""
    return list({tuple(round(axis, 9) for axis in point.axes): point for point in reversed(points)}.values())


def _name_points(points: Sequence[FrontPoint]) -> Iterator[FrontPoint]:
    """Yields the points, each with the measures in which it is best; the cheapest of equals gets the name."""
    names = {"money": 1, "energy": 2, "accuracy": 3}
    ends = {name: min(points, key=lambda p: (p.axes[axis], p.axes)) for name, axis in names.items()} if points else {}
    for point in points:
        mine = [name for name, end in ends.items() if end is point]
        if "energy" in mine and point.carbon_kg is not None:
            mine.append("carbon")
        yield replace(point, names=tuple(mine))
