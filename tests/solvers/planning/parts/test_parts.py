"""Services are divided into parts on nodes of their own, and their instances joined to plans that keep the rules."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any, Literal, TypeAlias

import pytest

from solvers.planning.availability import Availability
from solvers.planning.bound import rounds
from solvers.planning.carried import carry
from solvers.planning.finish import finish_services
from solvers.planning.judge import judge
from solvers.planning.parts import Division, divide_services
from solvers.planning.parts.bound import relax_to_needed
from solvers.planning.parts.follow import PlanFollower
from solvers.planning.parts.reasons import price_of_rules
from solvers.planning.plan import Plan, ServicePlan, list_unserved
from solvers.planning.problem import Instance, Job, JobProfile, Node, Problem, RunningState
from solvers.planning.search.promise import keep
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, find
from tests.solvers.planning import small_world

SEARCH = "shop/search"
WORK = 6


Bought: TypeAlias = tuple[int, Literal["onDemand", "spot"], str]
PLAIN: Bought = (2, "onDemand", "north")
SPOT: Bought = (2, "spot", "north")


def fleet(*nodes: Bought) -> dict[str, Node]:
    """Returns nodes of so many GPUs, by how they are bought and where they stand."""
    return {
        f"n{number}": Node(f"n{number}", "big", tuple(range(gpus)), 64, 256, 2.0, purchase, region)
        for number, (gpus, purchase, region) in enumerate(nodes)
    }


FOUR = fleet(PLAIN, PLAIN, PLAIN, PLAIN)


def asking(availability: Availability, nodes: dict[str, Node] = FOUR, **fields: Any) -> Problem:
    """Returns a fleet with a service of these rules beside one without."""
    whole = small_world.problem()
    first = replace(
        whole.services[SEARCH],
        **{"availability": availability, "rate_per_second": 200, "min_instances": 1, "gpu_types": None, **fields},
    )
    rank = whole.services["shop/rank"]
    return replace(whole, nodes=nodes, services={first.name: first, rank.name: rank}, jobs={}, limits={}, state=None)


def planned(problem: Problem) -> Plan:
    plan = find(problem, SolveBudget(None, WORK), alone=True).plan
    assert judge(problem, plan, keeps=keep).violations == ()
    return plan


def rate_on(plan: Plan, names: set[str]) -> float:
    return sum(line.rate_per_second for line in plan.instances if line.service == SEARCH and line.node in names)


def test_a_problem_without_rules_is_not_divided() -> None:
    assert divide_services(asking(Availability())) is None
    assert divide_services(asking(Availability("node"))) is None, "one instance is apart from nothing"


def test_parts_carry_all_of_the_rate_on_nodes_of_their_own() -> None:
    division = divide_services(asking(Availability(survive_nodes=1)))
    assert division is not None
    parts = division.parts[SEARCH]
    assert sum(part.share for part in parts) == pytest.approx(1)
    cells = [cell for part in parts for cell in part.cells]
    assert len(cells) == len(set(cells))
    for part in parts:
        assert division.problem.services[part.name].used_load.most == pytest.approx(0.95 * part.kept)


@pytest.mark.slow
def test_a_service_that_survives_a_node_is_served_whole() -> None:
    plan = planned(asking(Availability(survive_nodes=1)))
    assert plan.unserved == ()
    assert len({line.node for line in plan.instances if line.service == SEARCH}) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.3, 0.5])
def test_spot_nodes_carry_no_more_than_their_share(share: float) -> None:
    nodes = fleet(PLAIN, PLAIN, SPOT, SPOT)
    cheap = {
        name: replace(node, price_per_hour=0.5) if node.purchase == "spot" else node for name, node in nodes.items()
    }
    plan = planned(asking(Availability(max_spot_share=share), cheap, rate_per_second=400))
    assert plan.unserved == ()
    assert rate_on(plan, {"n2", "n3"}) <= share * 400 * (1 + 1e-5)


@pytest.mark.slow
def test_instances_run_in_as_many_regions_as_are_asked_for() -> None:
    nodes = fleet((2, "onDemand", "north"), (2, "onDemand", "north"), (2, "onDemand", "south"))
    plan = planned(asking(Availability("region"), nodes, min_instances=2))
    assert rate_on(plan, {"n2"}) > 0 and rate_on(plan, {"n0", "n1"}) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("availability", "nodes", "least", "reason"), [
    (Availability(survive_nodes=1), fleet((4, "onDemand", "north")), 1, "surviveNodes 1 needs two nodes"),
    (Availability("region"), FOUR, 2, "minInstances 2 must run in different regions"),
    (Availability("node"), FOUR, 5, "minInstances 5 must run on different nodes"),
    (Availability(max_spot_share=0.5), fleet((4, "spot", "north")), 1, "maxSpotShare 0.5: too few nodes"),
])  # fmt: skip
def test_a_service_without_the_nodes_that_it_needs_is_unserved_with_the_reason(
    availability: Availability, nodes: dict[str, Node], least: int, reason: str
) -> None:
    plan = planned(asking(availability, nodes, min_instances=least))
    (missing,) = plan.unserved
    assert missing.service == SEARCH
    assert missing.reason.startswith(reason)


@pytest.mark.slow
def test_where_slos_cannot_be_kept_through_a_loss_the_rate_still_is() -> None:
    """Two GPUs: each alone carries all of the rate at utilization 0.95, but not within the SLO."""
    nodes = fleet((1, "onDemand", "north"), (1, "onDemand", "north"))
    problem = asking(Availability(survive_nodes=1), nodes, slo_ms=26)
    alone = replace(problem, services={SEARCH: problem.services[SEARCH]})
    rates = [rate for rate in range(20, 320, 20) if not planned(_at(alone, rate)).unserved]
    kept = [rate for rate in rates if _keeps_slos(_at(alone, rate))]
    assert kept and max(kept) < max(rates)


def _at(problem: Problem, rate: float) -> Problem:
    return problem.change_rates({SEARCH: rate})


def _keeps_slos(problem: Problem) -> bool:
    division = divide_services(problem)
    assert division is not None
    return all(division.problem.services[part.name].used_load.share < 1 for part in division.parts[SEARCH])


@pytest.mark.slow
def test_what_runs_stays_when_nothing_changes() -> None:
    problem = asking(Availability(survive_nodes=1))
    plan = planned(problem)
    again = planned(replace(problem, state=RunningState(running=plan.instances)))
    changes = again.changes
    assert (changes.start, changes.stop, changes.move, changes.resize, changes.retune) == (0, 0, 0, 0, 0)


@pytest.mark.slow
def test_a_lost_node_is_made_good_and_what_is_left_stays() -> None:
    problem = asking(Availability(survive_nodes=1))
    plan = planned(problem)
    lost = next(line.node for line in plan.instances if line.service == SEARCH)
    left = tuple(line for line in plan.instances if line.node != lost)
    nodes = {name: node for name, node in problem.nodes.items() if name != lost}
    again = planned(replace(problem, nodes=nodes, state=RunningState(running=left)))
    assert again.unserved == ()


@pytest.mark.slow
def test_a_replanner_follows_rates_and_keeps_the_rules() -> None:
    problem = asking(Availability(survive_nodes=1))
    replanner = PlanFollower.of(problem, planned(problem))
    assert isinstance(replanner, PlanFollower)
    for rate in (150.0, 260.0, 90.0):
        reasons = replanner.change({SEARCH: rate})
        plan, now = replanner.plan, problem.change_rates({SEARCH: rate})
        assert judge(now, plan, simulate=False, keeps=keep).violations == (), reasons
        assert plan.unserved == ()


@pytest.mark.slow
def test_jobs_leave_a_service_what_it_needs_for_a_loss() -> None:
    problem = asking(Availability(survive_nodes=1), fleet((1, "onDemand", "north"), (1, "onDemand", "north")))
    profile = {"big": JobProfile(((10, 1.0), (50, 3.0)), 4, small_world.TRAINING)}
    job = Job("lab/train", "lab", "training", 1000.0, profile)
    plan = planned(replace(problem, jobs={job.name: job}))
    assert [entry.service for entry in plan.unserved if entry.service == SEARCH] == []


@pytest.mark.slow
def test_surviving_a_node_raises_the_bound() -> None:
    problem = asking(Availability(survive_nodes=1))
    plain = list(rounds(tables(asking(Availability())), 200_000))[-1].bound
    assert list(rounds(tables(relax_to_needed(problem)), 200_000))[-1].bound > plain


def test_the_price_of_surviving_is_named() -> None:
    found = price_of_rules(asking(Availability(survive_nodes=1)), SEARCH)
    assert found is not None
    assert found.rules == "surviveNodes 1"
    assert 0 < found.per_hour < inf
    assert price_of_rules(asking(Availability()), SEARCH) is None


@pytest.mark.slow
def test_a_division_maps_plans_there_and_back() -> None:
    problem = asking(Availability(survive_nodes=1))
    plan, division = planned(problem), divide_services(problem)
    assert isinstance(division, Division)
    parts = division.split_plan(plan)
    assert sum(line.rate_per_second for line in parts.instances) == pytest.approx(230)
    assert {line.service for line in parts.instances} <= division.problem.services.keys()


def test_what_runs_beside_a_refused_service_stays() -> None:
    """Without its neighbour it is faster, so that its old timeout would be longer than a batch takes."""
    problem = asking(Availability()).change_rates({"shop/rank": 1000, SEARCH: 1000})
    hasty = {name: replace(service, slo_ms=40) for name, service in problem.services.items()}
    problem = replace(problem, services=hasty)
    place = ("n0", 0)
    seats = [Instance(name, name, *place, "v", 4, 0, 40, 2, 1200, 1, 0) for name in problem.services]
    lines, _ = carry(problem, seats)
    rank = next(line for line in lines if line.service == "shop/rank")
    assert rank.batch_timeout_ms > 0
    apart = replace(problem.services[SEARCH], availability=Availability("node"), min_instances=2)
    problem = replace(problem, services={**problem.services, SEARCH: apart})
    plan = finish_services(tables(problem), ServicePlan(lines, list(list_unserved(problem, lines)), ""), None)
    assert {line.service for line in plan.instances} == {"shop/rank"}
