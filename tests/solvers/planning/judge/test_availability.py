"""The judge's rules of availability: different nodes or regions, the loss of a node, and the share of spot nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from solvers.planning.availability import Availability
from solvers.planning.judge import JudgedPlan, PlanEdit, judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Problem
from tests.solvers.planning import small_world
from tests.solvers.planning.small_world import instance

SEARCH = "shop/search"


def asking(availability: Availability, *, rate: float = 40, least: int = 2, **nodes: Any) -> Problem:
    """Returns a fleet with one service, whose instances of 40 SM% and batch 4 execute in 16 ms alone."""
    whole = small_world.problem()
    service = replace(
        whole.services[SEARCH], availability=availability, rate_per_second=rate, min_instances=least, gpu_types=None
    )
    changed = {name: replace(node, **nodes.get(name, {})) for name, node in whole.nodes.items()}
    return replace(whole, services={SEARCH: service}, jobs={}, nodes=changed, state=None)


def plan_of(*lines: Instance) -> Plan:
    return Plan(instances=lines)


def broken(problem: Problem, plan: Plan) -> set[str]:
    return {violation.rule for violation in judge(problem, plan, simulate=False).violations}


ONE_NODE = plan_of(instance(SEARCH, "n1", 0), instance(SEARCH, "n1", 1))
TWO_NODES = plan_of(instance(SEARCH, "n1", 0), instance(SEARCH, "n2", 0))


@pytest.mark.parametrize(("spread", "plan", "rules"), [
    ("gpu", ONE_NODE, set()),
    ("node", ONE_NODE, {"largest_apart"}),
    ("node", TWO_NODES, set()),
    ("region", TWO_NODES, {"largest_apart"}),
])  # fmt: skip
def test_min_instances_counts_what_the_service_spreads_over(spread: Any, plan: Plan, rules: set[str]) -> None:
    assert broken(asking(Availability(spread)), plan) == rules


def test_instances_in_two_regions_are_apart() -> None:
    assert broken(asking(Availability("region"), n2={"region": "north"}), TWO_NODES) == set()


def test_only_the_largest_must_be_apart() -> None:
    lines = (*TWO_NODES.instances, instance(SEARCH, "n1", 1))
    assert broken(asking(Availability("node"), rate=60), plan_of(*lines)) == set()


# An instance of batch 4 in 16 ms carries 250 a second when always busy: 237.5 at utilization 0.95.
@pytest.mark.parametrize(("each", "rules"), [(118.7, set()), (118.8, {"survives_a_node"})])
def test_what_is_left_without_a_node_carries_all_at_utilization_095(each: float, rules: set[str]) -> None:
    lines = [replace(line, rate_per_second=each) for line in TWO_NODES.instances]
    assert broken(asking(Availability(survive_nodes=1), rate=2 * each), plan_of(*lines)) == rules


def test_two_instances_on_one_node_are_lost_together() -> None:
    assert broken(asking(Availability(survive_nodes=1)), ONE_NODE) == {"survives_a_node"}


def test_a_single_instance_survives_no_loss() -> None:
    line = instance(SEARCH, "n1", 0, rate_per_second=40.0)
    assert broken(asking(Availability(survive_nodes=1), least=1), plan_of(line)) == {"survives_a_node"}


def test_a_neighbour_that_comes_later_may_take_what_a_loss_needs() -> None:
    problem = asking(Availability(survive_nodes=1), rate=237.4)
    rank = small_world.problem().services["shop/rank"]
    problem = replace(problem, services={**problem.services, rank.name: replace(rank, rate_per_second=20)})
    lines = [replace(line, rate_per_second=118.7) for line in TWO_NODES.instances]
    judged = JudgedPlan(problem, plan_of(*lines))
    came = instance(rank.name, "n2", 0, rate_per_second=20.0)
    after = judged.apply(PlanEdit(start=(came,), stop=(), unserved={rank.name: None}))
    assert "survives_a_node" in {violation.rule for violation in after.violations}
    gone = judged.apply(PlanEdit(start=(), stop=(came,), unserved={}))
    assert "survives_a_node" not in {violation.rule for violation in gone.violations}


@pytest.mark.parametrize(("share", "rules"), [(0.5, set()), (0.49, {"spot_within_share"}), (0, {"spot_within_share"})])
def test_spot_nodes_carry_at_most_their_share_of_the_rate(share: float, rules: set[str]) -> None:
    problem = asking(Availability(max_spot_share=share), n2={"purchase": "spot"})
    assert broken(problem, TWO_NODES) == rules
