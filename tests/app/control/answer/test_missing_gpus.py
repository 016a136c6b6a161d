"""A node with missing GPUs keeps its indexes through problem, plan, assignment, explanation and replay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.control.answer.explain.question import Explain
from app.control.answer.replay import Record, read_record, replay, write_record
from app.control.decide.deciding import Asking, CycleBudget, decide, pose_moment
from app.control.domain.decision import Decision, SolveOutcome
from app.control.domain.events import Reason
from app.control.domain.snapshot import NodeStatus, Snapshot
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from app.control.solve.inline import Inline
from app.control.solve.recorded import RecordingSolver
from app.control.solve.versions import versions
from solvers.planning.judge import judge
from tests.app.control.answer.whatif.worlds import snapshot

LEFT = {1, 3}  # the indexes have gaps


@pytest.fixture(scope="module")
def world() -> Snapshot:
    """Of each node's four GPUs the first is cordoned and the third has failed."""
    whole = snapshot(search=400.0, ads=200.0)
    declared = tuple(
        replace(manifest, spec={**manifest.spec, "gpus": 4}) if manifest.kind == "Node" else manifest
        for manifest in whole.declared
    )
    facts = {name: NodeStatus(name, "reporting", cordoned_gpus=(0,), failed_gpus=(2,)) for name in whole.nodes}
    return replace(whole, declared=declared, nodes=facts)


@pytest.fixture(scope="module")
def question(world: Snapshot) -> Question:
    return formulate(world)


@pytest.fixture(scope="module")
def decision(world: Snapshot, question: Question) -> Decision:
    recording = RecordingSolver(Inline())
    found = decide(pose_moment(world), Asking(recording, CycleBudget(work=2), Reason.CYCLE)).decision
    assert found
    return replace(found, drafts=tuple(recording.drafts))


def test_the_problem_has_the_indexes_that_are_left(question: Question) -> None:
    assert {node.gpus for node in question.problem.nodes.values()} == {tuple(sorted(LEFT))}


def test_the_plan_is_right_and_runs_on_what_is_left(question: Question, decision: Decision) -> None:
    assert decision.answer.plan
    assert judge(question.problem, decision.answer.plan).is_right
    assert {instance.gpu for instance in decision.plan.instances} == LEFT
    assert not decision.plan.unserved


def test_nodes_are_assigned_what_the_plan_says(decision: Decision) -> None:
    planned = {(line.node, line.gpu, line.service) for line in decision.plan.instances}
    assigned = {
        (node, line.gpu, line.owner) for node, desired in decision.desired.items() for line in desired.instances
    }
    assert assigned == planned
    for desired in decision.desired.values():
        assert {gpu.index for gpu in desired.gpus} == {line.gpu for line in desired.instances}


def test_what_runs_is_the_plan_in_force_and_what_is_cordoned_stays(world: Snapshot, decision: Decision) -> None:
    later = formulate(replace(world, in_force=dict(decision.desired), target=1))
    assert {line.place for line in later.plan_in_force.instances} == {line.place for line in decision.plan.instances}
    assert later.verdict.is_right
    place = decision.plan.instances[0].place
    facts = world.nodes[place[0]]
    cordoned = replace(facts, cordoned_gpus=(*facts.cordoned_gpus, place[1]))
    fewer = formulate(replace(world, in_force=dict(decision.desired), nodes={**world.nodes, place[0]: cordoned}))
    assert place not in {line.place for line in fewer.plan_in_force.instances}
    assert {(node, line.gpu) for node, line in fewer.pinned} == {place}


def test_it_is_explained_on_its_own_gpus(world: Snapshot, decision: Decision) -> None:
    for line in decision.plan.instances:
        found = Explain(world, decision.plan, "instance", line.id).answered()
        assert f"{line.node}/{line.gpu} " in found["sentences"][0]
        assert found["instance"]["gpu"] == line.gpu
        assert all(other["node"] in world.nodes for other in found["alternatives"])


@pytest.mark.slow
def test_it_is_replayed(world: Snapshot, decision: Decision) -> None:
    record = Record(
        1, decision.lane, SolveOutcome.SOLVED, world, decision.drafts, dict(versions()), decision.plan,
        dict(decision.desired),
    )  # fmt: skip
    assert replay(read_record(write_record(record)), Inline()).is_identical
