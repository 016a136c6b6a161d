"""Plays one load on one fleet under three rules for its pools, and prices hindsight: rows that can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

from app.control.formulate.problem import build_problem
from app.control.rent.question import list_used, make_pool
from app.control.rent.rule import AccountRule, RentRule
from app.manifests.model import Kind
from app.manifests.offline import DeclaredFiles
from simulation.consolidation import ConsolidationRule
from simulation.measure.fresh import bare_problem
from simulation.measure.run import SimulationOrder, simulate
from simulation.own_database import own_database
from simulation.shapes import Shape
from solvers.planners.names import HPA_CHEAPEST
from solvers.planning.solve import SolveBudget, solve
from solvers.renting import find_hindsight

HEADROOMS = (0.0, 0.1, 0.2, 0.4, 0.8)  # that a row may add, the first that serves as well as ours
EQUAL_SHARE = 0.002  # of all requests: as much less within their SLO counts as equal
SLOT_SECONDS, LOOK_SECONDS = 600.0, 60.0
WORK = 60  # steps of hindsight's plan of a slot
OURS, OUR_PLACEMENT, WHOLE_GPUS = "ours", "our placement, Karpenter's nodes", "whole GPUs, Karpenter's nodes"


@dataclass(frozen=True, slots=True)
class RentingCase:
    """A fleet with pools and its load."""

    world: DeclaredFiles
    shapes: Mapping[str, Shape]
    hours: float
    seed: int
    consolidate_after_seconds: float


def compare(case: RentingCase, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Returns a row for each rule, at equal attainment as far as headroom can bring it, and one for hindsight."""
    ours = _play(case, OURS, "", AccountRule, say)
    rows = [ours]
    for name, planner in ((OUR_PLACEMENT, ""), (WHOLE_GPUS, HPA_CHEAPEST)):
        for headroom in HEADROOMS:
            rule = partial(ConsolidationRule, case.consolidate_after_seconds, headroom)
            row = _play(case, name, planner, rule, say) | {"headroom": headroom}
            if serves_as_well(row, ours):
                break
        else:
            say(f"{name}: serves less than ours with any headroom up to {HEADROOMS[-1]:.0%}, so costs do not compare")
        rows.append(row)
    say("hindsight")
    found = price_hindsight(case)
    rows.append({"row": "hindsight", "rented_per_hour": None if found is None else round(found, 4)})
    for row in rows:
        row["ours_of_it"] = divide_ours(row, ours)
    return rows[::-1][1:] + rows[-1:]


def serves_as_well(row: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Returns true if a row's requests are in time as often as ours, and it misses no more SLOs."""
    return bool(row["attained"] >= ours["attained"] - EQUAL_SHARE and row["missed"] <= ours["missed"])


def divide_ours(row: Mapping[str, Any], ours: Mapping[str, Any]) -> float | None:
    """Returns our cost divided by the row's; None if it has none, or serves less than ours."""
    paid = row["rented_per_hour"]
    if not paid or ("attained" in row and not serves_as_well(row, ours)):
        return None
    return float(round(ours["rented_per_hour"] / paid, 3))


def _play(
    case: RentingCase, name: str, planner: str, make_rule: Callable[[], RentRule], say: Callable[[str], None]
) -> dict[str, Any]:
    order = SimulationOrder(
        case.world, case.shapes, case.hours, case.seed, is_compared=False,
        planner=planner, make_rent_rule=make_rule,
    )  # fmt: skip
    say(name)
    with own_database("gpuwright-pools-", lambda line: None) as url:
        figures = simulate(url, order).figures
    promised = {f"{item.tenant}/{item.name}": item.spec["slo"]["percentile"] for item in case.world.of(Kind.SERVICE)}
    shares, pools = figures["attainment"], figures["pools"].values()
    lost = figures["lateRequests"] + figures["shedRequests"]
    return {
        "row": name,
        "rented_per_hour": round(sum(pool["perHour"] for pool in pools), 4),
        "attained": round(1 - lost / max(1, figures["requests"]), 5),
        "missed": sum(100 * found["share"] < promised[name] for name, found in shares.items()),
        "orders": sum(pool["orders"] for pool in pools),
        "wasted_minutes": sum(pool["wastedMinutes"] for pool in pools),
        "held_per_hour": round(figures["heldPerHour"], 4),
    }


def price_hindsight(case: RentingCase) -> float | None:
    """Returns what pools cost an hour if every slot has the nodes that the best plan for its highest rates uses.

    Returns None if the cheapest rental was not found for one of the pools.
    """
    bare = bare_problem(build_problem(case.world))
    paid = {name: replace(node, pricing="paid") for name, node in bare.nodes.items()}
    problem = replace(bare, nodes=paid, policy=replace(bare.policy, pricing="gpu"))
    types = {item.name: item.spec for item in case.world.of(Kind.GPU_TYPE)}
    pools = [make_pool(item.name, item.spec, types[str(item.spec["gpuType"])]) for item in case.world.of(Kind.POOL)]
    pool_of, nodes = dict[str, str](), dict(problem.nodes)
    for pool in pools:
        for number in range(pool.most):
            name = f"hindsight-{pool.name}-{number}"
            nodes[name], pool_of[name] = pool.candidate(name), pool.name
    needs: dict[str, list[int]] = {pool.name: [] for pool in pools}
    slots = ceil(3600 * case.hours / SLOT_SECONDS)
    for slot in range(slots):
        looks = [SLOT_SECONDS * slot + LOOK_SECONDS * look for look in range(int(SLOT_SECONDS / LOOK_SECONDS))]
        rates = {
            name: max(0.01, service.rate_per_second * max(case.shapes[name](at) for at in looks))
            for name, service in problem.services.items()
        }
        plan = solve(
            replace(problem, nodes=nodes).change_rates(rates), SolveBudget(seconds=None, work=WORK, seed=case.seed)
        )
        used = Counter(pool_of[node] for node in list_used(plan) & pool_of.keys())
        for pool in pools:
            needs[pool.name].append(max(pool.least, used[pool.name]))
    cost = 0.0
    for pool in pools:
        term = ceil(pool.terms.entry_seconds / SLOT_SECONDS)
        found = find_hindsight(needs[pool.name], pool.terms.price_per_hour * SLOT_SECONDS / 3600, term)
        if found is None:
            return None
        cost += found.cost
    return 3600 * cost / (slots * SLOT_SECONDS)
