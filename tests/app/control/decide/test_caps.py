"""Assignments carry the watts that the operator allows each GPU, and a lower cap reaches all that runs there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.control.decide.assigning import assign_plan
from app.control.domain.snapshot import Snapshot
from app.control.formulate.formulate import formulate
from solvers.planning.judge import judge
from solvers.planning.plan import Plan, Unserved
from tests.app.control.decide.test_several_gpus import planned, world

CAPS_W = [300.0, 310.0, 320.0, 330.0, 340.0, 350.0, 360.0, 370.0]  # of GPUs that may draw 700 W


def with_caps(snapshot: Snapshot, caps_w: list[float]) -> Snapshot:
    """Returns the snapshot with these caps on the H100s of h1."""
    declared = tuple(
        replace(item, spec={**item.spec, "capW": caps_w}) if (item.kind, item.name) == ("Node", "h1") else item
        for item in snapshot.declared
    )
    return replace(snapshot, declared=declared)


@pytest.mark.slow
def test_each_gpu_is_assigned_its_own_cap_and_an_uncapped_node_its_types() -> None:
    snapshot = with_caps(world(), CAPS_W)
    question = formulate(snapshot)
    assert question.problem.nodes["h1"].caps_w == tuple(CAPS_W)
    desired = assign_plan(snapshot, question, planned()[1])["h1"].gpus
    assert desired
    assert [gpu.cap_w for gpu in desired] == [CAPS_W[gpu.index] for gpu in desired]
    free = assign_plan(world(), formulate(world()), planned()[1])["h1"].gpus
    assert {gpu.cap_w for gpu in free} == {700.0}


@pytest.mark.slow
def test_a_lower_cap_is_assigned_to_gpus_that_a_plan_leaves_too_until_nothing_runs_there() -> None:
    before, _ = planned()
    used = [gpu.index for gpu in before.in_force["h1"].gpus]
    lowered = with_caps(before, CAPS_W)
    question = formulate(lowered)
    services = question.problem.services.values()
    nothing = Plan((), unserved=tuple(Unserved(each.name, each.rate_per_second) for each in services))
    assert judge(question.problem, nothing).is_right
    leaving = assign_plan(lowered, question, nothing)["h1"].gpus
    assert [gpu.index for gpu in leaving] == used
    for gpu in leaving:
        assert gpu.cap_w == CAPS_W[gpu.index]
        assert gpu.clock_mhz == next(each.clock_mhz for each in before.in_force["h1"].gpus if each.index == gpu.index)
    kept = assign_plan(before, formulate(before), nothing)  # without a new cap they are left as they are
    assert not kept.get("h1") or not kept["h1"].gpus
