"""minInstances beyond the fleet's size displaces no copy that serves, and the shortfall is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.control.decide.decide import draft_changes, hold_back
from app.control.domain.decision import Decision
from app.control.domain.snapshot import NodeStatus, Snapshot
from app.control.formulate.formulate import formulate
from app.control.solve.orders import Solve, solve_order
from tests.app.control.answer.whatif.worlds import snapshot

SERVICE = "shop/search"


def asking(world: Snapshot, instances: int) -> Snapshot:
    declared = [
        replace(manifest, spec={**manifest.spec, "minInstances": instances}) if manifest.kind == "Service" else manifest
        for manifest in world.declared
    ]
    return replace(world, declared=tuple(declared))


def decided(world: Snapshot) -> Decision:
    question = formulate(world)
    return hold_back(
        world, question, draft_changes(world, question, solve_order(Solve(question.problem, None, 2), alone=True))
    )


@pytest.fixture(scope="module")
def occupied() -> Snapshot:
    """Two copies run, on four GPUs."""
    world = asking(snapshot(search=100.0), 2)
    return replace(world, in_force=decided(world).desired, target=1)


def copies(decision: Decision) -> list[str]:
    return sorted(instance.id for wanted in decision.desired.values() for instance in wanted.instances)


def test_asking_for_more_gpus_than_there_are_keeps_running_copies_and_is_reported(occupied: Snapshot) -> None:
    found = decided(asking(occupied, 50))
    assert len(copies(found)) >= 2
    (held,) = [change for change in found.held_back if change.reason == "too_few_gpus"]
    assert held.service == SERVICE
    assert held.message.startswith("minInstances asks for 50 GPUs, but only 4 can run it now")


def test_what_is_there_is_taken(occupied: Snapshot) -> None:
    found = decided(asking(occupied, 4))
    assert len(copies(found)) == 4
    assert found.held_back == ()


def test_gpus_that_fail_take_none_of_the_copies_that_are_left(occupied: Snapshot) -> None:
    world = asking(occupied, 2)
    placed, *_ = [(node, line) for node, wanted in occupied.in_force.items() for line in wanted.instances]
    failed = {name: NodeStatus(name, "reporting", failed_gpus=(0, 1)) for name in world.nodes}
    failed[placed[0]] = NodeStatus(placed[0], "reporting", failed_gpus=(1 - placed[1].gpu,))
    found = decided(replace(world, nodes=failed))
    assert len(copies(found)) == 1
    assert [held.reason for held in found.held_back] == ["too_few_gpus"]


def test_of_what_never_stood_nothing_is_begun() -> None:
    question = formulate(asking(snapshot(search=100.0), 50))
    assert question.problem.services[SERVICE].min_instances == 50 and question.shortages == {}
