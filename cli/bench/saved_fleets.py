"""Compares what five ways to serve the same fleets cost, each on as many GPUs as it wants: the README's figure.

The fleets are family A's, with three times its GPUs, so that every way serves everything. Each plan is judged, and then
played for half a minute of virtual time, once its copies are up. Autoscalers are taken as they are at rest: what they
cost while they follow a load is left out, and so is what our rollouts cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.families import family, multiply_gpus
from benchmarks.fleet_map import draw_map
from simulation.clock import Clock
from simulation.fleet.fleet import SimulatedFleet
from simulation.fleet.plan_execution import carry_out
from simulation.fleet_truth import FleetTruth
from solvers.planners.ask import find_plan
from solvers.planners.names import HPA_CHEAPEST, JOINT, ONE_PER_GPU, TIME_SLICED
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget, solve

GPUS, SERVICES, GPU_FACTOR = 100, 50, 3
WORK = 200  # of our search: the same plan on any machine, some seconds of a core
SETTLE_SECONDS, PLAYED_SECONDS = 30, 30
OTHERS = (HPA_CHEAPEST, ONE_PER_GPU, TIME_SLICED)


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """What one policy costs on one fleet, and how it serves it."""

    price_per_hour: float
    gpus: int
    unserved_share: float  # of the rates
    requests: int
    late: int  # beyond the SLO, or without an answer
    slos_kept: int


@dataclass(frozen=True, slots=True)
class FleetComparison:
    """All plans of one fleet, and the bound that no plan can beat."""

    problem: Problem
    plans: dict[str, Plan]
    figures: dict[str, PolicyFigures]
    bound: float


def draw_fleet(seed: int) -> Problem:
    """Returns the fleet of a seed."""
    return multiply_gpus(family("A", GPUS, SERVICES, seed), GPU_FACTOR)


def plan_fleet(problem: Problem, seed: int) -> tuple[dict[str, Plan], float]:
    """Returns the plan of each policy, and the bound."""
    whole = SolveBudget(seconds=None, seed=seed)
    plans = {name: find_plan(problem, name, whole, bounds=False).plan for name in OTHERS}
    plans[JOINT] = solve(problem, SolveBudget(seconds=None, work=WORK, seed=seed))
    certificate = plans[JOINT].certificate
    assert certificate
    assert certificate.bound is not None, "fleets without language models have a bound"
    return plans, certificate.bound


def compare_fleet(seed: int) -> FleetComparison:
    """Plans and plays one fleet."""
    problem = draw_fleet(seed)
    plans, bound = plan_fleet(problem, seed)
    return FleetComparison(problem, plans, {name: _play(problem, plan, seed) for name, plan in plans.items()}, bound)


def compare_fleets(seeds: int, say: Callable[[str], None]) -> list[FleetComparison]:
    """Compares the fleets of seeds 0 to `seeds` - 1, one after the other."""
    found = []
    for seed in range(seeds):
        found.append(compare_fleet(seed))
        prices = ", ".join(
            f"{_name_policy(name)} {known.price_per_hour:.1f}" for name, known in found[-1].figures.items()
        )
        say(f"fleet {seed}: {prices}, bound {found[-1].bound:.1f} an hour")
    return found


def draw_middle(fleets: Sequence[FleetComparison]) -> str:
    """Draws the fleet of the middle saving: a GPU for each instance, and ours."""

    def ratio(fleet: FleetComparison) -> float:
        return fleet.figures[JOINT].price_per_hour / fleet.figures[ONE_PER_GPU].price_per_hour

    middle = sorted(fleets, key=ratio)[len(fleets) // 2]
    before, after = middle.plans[ONE_PER_GPU], middle.plans[JOINT]
    return draw_map(middle.problem, ("One GPU each", before), ("gpuwright", after))


def summarise(fleets: Sequence[FleetComparison]) -> list[dict[str, Any]]:
    """Returns a row for each policy and one for the bound: medians over the fleets, and the extremes of the ratio."""
    ours = [fleet.figures[JOINT].price_per_hour for fleet in fleets]
    rows = []
    for name in (*OTHERS, JOINT):
        own = [fleet.figures[name] for fleet in fleets]
        requests = sum(known.requests for known in own)
        rows.append(
            {"policy": _name_policy(name)}
            | _compare_prices([known.price_per_hour for known in own], ours)
            | {
                "gpus": round(median(known.gpus for known in own)),
                "unserved_%": round(100 * max(known.unserved_share for known in own), 2),
                "late_%": round(100 * sum(known.late for known in own) / max(1, requests), 2),
                "slos_kept_%": round(100 * sum(known.slos_kept for known in own) / (SERVICES * len(own)), 1),
            }
        )
    rows.append({"policy": "lower bound"} | _compare_prices([fleet.bound for fleet in fleets], ours))
    return rows


def _name_policy(name: str) -> str:
    return "ours" if name == JOINT else name


def _compare_prices(prices: Sequence[float], ours: Sequence[float]) -> dict[str, Any]:
    saved = [100 * (1 - mine / price) for price, mine in zip(prices, ours, strict=True)]
    return {
        "price_per_hour": round(median(prices), 1),
        "ours_saves_%": round(median(saved)),
        "least_%": round(min(saved)),
        "most_%": round(max(saved)),
    }


def _play(problem: Problem, plan: Plan, seed: int) -> PolicyFigures:
    """Plays a plan: what is late in half a minute, once its copies are up."""
    clock = Clock()
    fleet = SimulatedFleet(FleetTruth(problem), clock, seed=seed)
    carry_out(fleet, plan)
    _tick(fleet, clock, SETTLE_SECONDS)
    before = {name: (total.answered + total.errors, total.within) for name, total in fleet.services.items()}
    _tick(fleet, clock, PLAYED_SECONDS)
    requests = late = kept = 0
    for name, total in fleet.services.items():
        came = total.answered + total.errors - before[name][0]
        in_time = total.within - before[name][1]
        requests, late = requests + came, late + came - in_time
        kept += 100 * in_time >= problem.services[name].percentile * came
    assert plan.certificate
    wanted = sum(service.rate_per_second for service in problem.services.values())
    return PolicyFigures(
        plan.certificate.cost.total - plan.certificate.cost.unserved,
        len({line.place for line in plan.instances}),
        sum(rest.rate_per_second for rest in plan.unserved) / wanted,
        requests,
        late,
        kept,
    )


def _tick(fleet: SimulatedFleet, clock: Clock, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance(1.0)
        fleet.tick()
