"""Changes wait only if the rollout could have taken a step, and took none that could free them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import FleetStatus, NodeDesired
from app.control.domain.leading import FleetView
from app.store.plans.plans import PlanInForce
from benchmarks.families import family
from simulation.measure.held import Seat, is_waiting, price_of

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(seconds=1)


def test_changes_wait_where_the_rollout_has_begun_and_nothing_is_under_way() -> None:
    plan = PlanInForce(2, "rolling", b"", b"", {}, {}, "full", NOON, NOON)
    wanted = {"node-0": NodeDesired(instances=(AssignedInstance("a", 0, "shop", template="triton", sm_percent=10.0),))}
    view = FleetView(LATER, (), plan, wanted, {}, FleetStatus())
    assert is_waiting(view)
    assert not is_waiting(replace(view, at=NOON)), "it was recorded at this moment"
    assert not is_waiting(replace(view, plan=replace(plan, rollout={"pending": {"a": 1}})))
    assert not is_waiting(replace(view, plan=replace(plan, state="done")))
    assert not is_waiting(replace(view, assigned=wanted))


def test_one_gpu_in_use_costs_all_of_a_node_that_is_billed_whole() -> None:
    problem = family("A", 8, 2, 0)
    node = max(problem.nodes.values(), key=lambda node: node.gpu_count)
    assert node.gpu_count > 1
    used: dict[Seat, list[tuple[float, float]]] = {(node.name, 0): [(50.0, 2.0)]}
    assert price_of(problem, used) == node.price_per_hour
    whole = replace(problem, nodes={**problem.nodes, node.name: replace(node, pricing="node")})
    assert price_of(whole, used) == node.price_per_hour * node.gpu_count
