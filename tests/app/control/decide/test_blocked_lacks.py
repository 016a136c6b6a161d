"""Where the plan that serves more has no order of steps, load does not go without GPUs that are free."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.control.answer.replay import Record, from_json, replay, to_json
from app.control.cycle import CycleBudget, run_cycle
from app.control.decide.assigning import desired_of
from app.control.decide.decide import hold_back
from app.control.decide.last_question import LastQuestion
from app.control.domain.decision import Decision
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, NodeStatus, Snapshot
from app.control.formulate.formulate import formulate
from app.control.rollout import order
from app.control.rollout.rules_of import rules_of
from app.control.solve.versions import versions
from app.manifests.model import Kind
from simulation.evaluate import testbeds
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Problem
from tests.app.control.decide.conftest import wanted_in
from tests.app.control.decide.test_batches import SOLVER, START
from tests.app.control.test_certificates import OneMoment

RESNET, INCEPTION, SSD = "serving/resnet50", "serving/inception-v3", "serving/ssd-resnet50"
BEFORE = {RESNET: 97.4, INCEPTION: 63.4, SSD: 8.4}
RISEN = {RESNET: 126.2, INCEPTION: 78.5, SSD: 8.4}
RUNNING = (  # on five of 16 GPUs: node, GPU, service, SM%, batch, rate
    ("t4-1", 0, RESNET, 100, 8, 59.3),
    ("t4-1", 1, SSD, 87, 4, 8.4),
    ("t4-2", 0, INCEPTION, 80, 8, 40.8),
    ("t4-2", 1, INCEPTION, 48, 8, 22.6),
    ("t4-3", 0, RESNET, 54, 8, 38.1),
)
WAIT_MS = 20.0


def loaded(snapshot: Snapshot, rates: dict[str, float]) -> Snapshot:
    return replace(snapshot, expected={name: ExpectedLoad(rate) for name, rate in rates.items()})


def instance(problem: Problem, number: int, *line: object) -> Instance:
    node, gpu, name, sm_percent, batch, rate = line
    service, gpu_type = problem.services[str(name)], problem.type_of(str(node))
    profile = next(
        profile
        for profile in problem.profiles.values()
        if (profile.model, profile.gpu_type) == (service.model, gpu_type.name)
    )
    return Instance(
        f"i{number}", service.name, str(node), int(str(gpu)), profile.variant, int(str(batch)), WAIT_MS,
        int(str(sm_percent)), profile.memory_gib[int(str(batch))], gpu_type.clocks_mhz[-1], float(str(rate)),
    )  # fmt: skip


@pytest.fixture(scope="module")
def risen() -> Snapshot:
    """Three services on a few cheap GPUs whose loads have risen: the cheapest plan gives them each other's places."""
    world = testbeds.testbed("hetsev", BEFORE)
    declared = tuple(
        DeclaredObject(item.kind, item.tenant, item.name, item.spec)
        for item in world.manifests.values()
        if item.kind is not Kind.STATE
    )
    nodes = {item.name: NodeStatus(item.name, "reporting") for item in world.of(Kind.NODE)}
    snapshot = loaded(Snapshot(START, 1, declared, nodes), BEFORE)
    question = formulate(snapshot)
    plan = Plan(tuple(instance(question.problem, number, *line) for number, line in enumerate(RUNNING)))
    return loaded(replace(snapshot, in_force=desired_of(snapshot, question, plan), target=1), RISEN)


@pytest.fixture(scope="module")
def decision(risen: Snapshot) -> Decision:
    store = OneMoment(risen)
    run_cycle(store, SOLVER, lambda known: risen.expected, LastQuestion(), CycleBudget(work=2))
    [decision] = store.decisions
    return decision


def test_load_is_served_on_free_gpus_where_no_steps_lead_to_the_cheapest_plan(
    risen: Snapshot, decision: Decision
) -> None:
    question = formulate(risen)
    assert question.plan_in_force.unserved
    assert hold_back(risen, question, wanted_in(risen)).plan.unserved
    assert decision.plan.unserved == ()
    changes = decision.plan.changes
    assert (changes.stop, changes.move, changes.resize) == (0, 0, 0)
    assert changes.start > 0
    assert not order(risen.assignments, decision.desired, rules_of(risen.declared)).stuck
    assert {line.node for line in decision.plan.instances} <= {f"t4-{number}" for number in range(1, 5)}  # no dear GPU


def test_such_an_addition_says_why_and_can_be_replayed(risen: Snapshot, decision: Decision) -> None:
    assert "no order of steps" in decision.message
    answer = decision.answer
    assert not answer.is_addition  # the solver did not fail, so nobody is alarmed
    record = Record(
        2, decision.lane, answer.outcome, risen, dict(answer.recipe), dict(versions()), decision.plan,
        dict(decision.desired),
    )  # fmt: skip
    assert replay(from_json(to_json(record)), SOLVER).is_identical
