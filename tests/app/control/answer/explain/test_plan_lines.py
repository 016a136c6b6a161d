"""A recorded plan as today's problem sees it: GPUs by their nodes' indexes, a prediction for every line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.control.answer.explain.plan_lines import add_predictions, drop_left_out
from app.control.answer.explain.question import Explain
from app.control.decide.assigning import assign_plan
from app.control.domain.decision import SolveOutcome
from app.control.domain.snapshot import ExpectedLoad, NodeStatus, Snapshot
from app.control.formulate.pose import pose
from app.control.formulate.question import Question
from app.control.solve.orders import Solve, solve_order
from solvers.planning.plan import Plan
from solvers.planning.solve import SolveBudget, find
from tests.app.control.answer.explain.test_explain import planned
from tests.app.control.answer.whatif.worlds import snapshot
from tests.solvers.planning.wide.wide_fleets import chat, fleet


@pytest.fixture(scope="module")
def world() -> Snapshot:
    """The first GPU of big-1 and of small-1 has failed."""
    whole = snapshot(search=300.0, ads=100.0)
    nodes = {name: NodeStatus(name, "reporting", failed_gpus=(0,)) for name in whole.nodes}
    return replace(whole, nodes=nodes)


@pytest.fixture(scope="module")
def question(world: Snapshot) -> Question:
    return pose(world)


@pytest.fixture(scope="module")
def plan(question: Question) -> Plan:
    answer = solve_order(Solve(question.problem, None, 2), alone=True)
    assert answer.outcome is SolveOutcome.SOLVED
    assert answer.plan
    return answer.plan


def test_a_plan_names_gpus_as_their_nodes_do(question: Question, plan: Plan) -> None:
    assert {instance.gpu for instance in plan.instances} == {1}
    assert drop_left_out(question.problem, plan) == plan


def test_instances_on_a_gpu_outside_the_problem_are_left_out(question: Question, plan: Plan) -> None:
    astray = replace(plan.instances[0], id="astray", gpu=0)
    more = replace(plan, instances=(*plan.instances, astray))
    assert drop_left_out(question.problem, more).instances == drop_left_out(question.problem, plan).instances


def test_lines_without_predictions_get_those_that_the_solver_would_give(question: Question, plan: Plan) -> None:
    known = drop_left_out(question.problem, plan)
    bare = replace(
        known, instances=tuple(replace(instance, exec_ms=0.0, latency_ms=0.0) for instance in known.instances)
    )
    found = {instance.id: instance for instance in add_predictions(question.problem, bare).instances}
    for instance in known.instances:
        assert found[instance.id].exec_ms == pytest.approx(instance.exec_ms)
        assert found[instance.id].latency_ms == pytest.approx(instance.latency_ms)


@pytest.mark.slow
def test_a_language_model_that_was_taken_over_while_running_gets_its_times_of_tokens() -> None:
    problem = fleet(chat())
    plan = find(problem, SolveBudget(None, 6), alone=True).plan
    assert plan.instances
    bare = replace(plan, instances=tuple(replace(line, latency_ms=0.0, tpot_ms=0.0) for line in plan.instances))
    found = {line.id: line for line in add_predictions(problem, bare).instances}
    for line in plan.instances:
        assert found[line.id].latency_ms == pytest.approx(line.latency_ms)
        assert found[line.id].tpot_ms == pytest.approx(line.tpot_ms)


def test_a_job_that_continues_unchanged_is_described_with_its_speed() -> None:
    problem, plan = planned(2)
    assert plan.instances
    assert plan.jobs
    bare = replace(plan, jobs=tuple(replace(job, units_per_second=0.0) for job in plan.jobs))
    found = {job.job: job for job in add_predictions(problem, bare).jobs}
    for job in plan.jobs:
        assert found[job.job].units_per_second == pytest.approx(job.units_per_second)


def test_sentences_name_gpus_as_their_nodes_do(world: Snapshot, plan: Plan) -> None:
    for instance in plan.instances:
        explanation = Explain(world, plan, "instance", instance.id).answered()
        assert f"{instance.node}/1" in explanation["sentences"][0]
        assert f"{instance.node}/0" not in "\n".join(explanation["sentences"])
    assert Explain(world, plan, "instance", "none").answered() == {"missing": "the plan has no instance none"}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (NodeStatus("", "silent"), "does not report"),
        (NodeStatus("", "mismatch"), "has other GPUs than declared"),
        (NodeStatus("", "reporting", cordoned_gpus=(0, 1)), "is cordoned there, or rests after a failed step"),
    ],
)
def test_why_a_service_stays_where_nothing_is_planned(
    world: Snapshot, question: Question, plan: Plan, status: NodeStatus, said: str
) -> None:
    running = replace(world, in_force=assign_plan(world, question, plan))
    nodes = {name: replace(status, name=name) for name in world.nodes}
    held = replace(running, nodes=nodes, expected=dict.fromkeys(world.expected, ExpectedLoad(1.0)))
    nothing = replace(plan, instances=(), unserved=())
    for service in {line.service for line in plan.instances}:
        places = sorted({line.node for line in plan.instances if line.service == service})
        assert Explain(held, nothing, "service", service).answered() == {
            "missing": f"{service} stays unchanged where it runs: {'; '.join(f'{node} {said}' for node in places)}"
        }


def test_a_service_that_was_declared_later_is_named_as_new(world: Snapshot, plan: Plan) -> None:
    explanation = Explain(world, plan, "service", "shop/late").answered()
    assert "was declared after this plan was made" in explanation["missing"]


def test_a_service_says_its_margin_and_its_risk(world: Snapshot, plan: Plan) -> None:
    known = ExpectedLoad(300.0, reason="held", margin=0.18, risk=0.05, missed_hours=2, known_hours=40)
    given = replace(world, expected={"shop/search": known})
    assert Explain(given, plan, "service", "shop/search").answered()["sentences"][2] == (
        "plans for at least 1.18 times the load that is surely there: 5 % of hours may overspend their error budget by "
        "load above the plan; 2 of its last 40 hours did"
    )
