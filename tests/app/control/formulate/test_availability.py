"""Rules of availability that a smaller fleet cannot keep take no copy that serves, and the shortfall is named."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from app.control.decide.decide import draft_changes, hold_back
from app.control.domain.decision import Decision
from app.control.domain.snapshot import NodeStatus, Snapshot
from app.control.formulate.availability import _is_served
from app.control.formulate.formulate import formulate
from app.control.formulate.pose import pose
from app.control.solve.orders import Solve, solve_order
from solvers.planning.availability import Availability
from tests.app.control.answer.whatif.worlds import snapshot

SERVICE = "shop/search"


def surviving(world: Snapshot) -> Snapshot:
    declared = [
        replace(manifest, spec={**manifest.spec, "availability": {"surviveNodes": 1}})
        if manifest.kind == "Service"
        else manifest
        for manifest in world.declared
    ]
    return replace(world, declared=tuple(declared))


def decided(world: Snapshot) -> Decision:
    question = formulate(world)
    return hold_back(
        world, question, draft_changes(world, question, solve_order(Solve(question.problem, None, 4), alone=True))
    )


@pytest.fixture(scope="module")
def running() -> Snapshot:
    """Copies run on both nodes."""
    world = surviving(snapshot(search=100.0))
    return replace(world, in_force=decided(world).desired, target=1)


def test_the_rules_of_a_manifest_reach_the_problem(running: Snapshot) -> None:
    assert formulate(running).problem.services[SERVICE].availability == Availability("gpu", 1, 1.0)


def test_what_survives_a_node_runs_on_two_nodes(running: Snapshot) -> None:
    assert len([node for node, wanted in running.in_force.items() if wanted.instances]) == 2


def test_after_a_loss_what_is_left_serves_without_the_rule_and_says_so(running: Snapshot) -> None:
    nodes = {**running.nodes, "small-1": NodeStatus("small-1", "lost")}
    world = replace(running, nodes=nodes)
    question = formulate(world)
    assert question.problem.services[SERVICE].availability == Availability()
    assert question.shortages[SERVICE].startswith("the fleet is too small for its availability now")
    found = decided(world)
    assert sum(line.rate_per_second for line in found.desired["big-1"].instances) == pytest.approx(100.0)
    assert "too_few_gpus" in [held.reason for held in found.held_back]


def test_with_both_nodes_the_rule_holds(running: Snapshot) -> None:
    assert formulate(running).shortages == {}


def lost(running: Snapshot) -> Snapshot:
    return replace(running, nodes={**running.nodes, "small-1": NodeStatus("small-1", "lost")})


def test_the_same_question_is_searched_once_whatever_the_time(running: Snapshot) -> None:
    _is_served.cache_clear()
    world = lost(running)
    first = pose(world).shortages
    assert SERVICE in first
    assert pose(replace(world, at=world.at + timedelta(seconds=30))).shortages == first
    assert (_is_served.cache_info().misses, _is_served.cache_info().hits) == (1, 1)


def test_another_rate_is_another_question(running: Snapshot) -> None:
    _is_served.cache_clear()
    world = lost(running)
    pose(world)
    pose(replace(world, expected={SERVICE: replace(world.expected[SERVICE], rate_per_second=101.0)}))
    assert _is_served.cache_info().misses == 2
