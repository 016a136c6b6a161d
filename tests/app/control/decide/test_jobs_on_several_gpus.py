"""A job on several GPUs: it is assigned, keeps them while services have enough, and comes back when there is room."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from app.control.answer.explain.job import why_job
from app.control.decide.assigning import assign_plan
from app.control.decide.decide import draft_changes, hold_back
from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.domain.desired import Desired, NodeDesired
from app.control.domain.events import Reason
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, JobProgress, NodeStatus, Snapshot
from app.control.formulate.formulate import formulate
from app.control.jobs.queue import queue_jobs
from app.control.jobs.room import free_capacity, widest_free
from app.control.jobs.state import read_declared_work
from app.control.solve.inline import Inline
from solvers.planning.jobs import place_jobs
from solvers.planning.plan import Plan

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TRAIN = "lab/train"
NODES = ("n1", "n2")


def declared(*objects: tuple[str, str, str, dict[str, Any]]) -> tuple[DeclaredObject, ...]:
    return tuple(sorted((DeclaredObject(*item) for item in objects), key=lambda i: (i.kind, i.tenant, i.name)))


def job(gpus: int = 2, **fields: Any) -> tuple[str, str, str, dict[str, Any]]:
    profile = {"stepsPerSecond": {"100": 3.0}, "memoryGib": 10}
    spec = {"type": "training", "steps": 10**6, "gpus": gpus, "maxPricePerHour": 20, "profiles": {"big": profile}}
    return "Job", "lab", "train", spec | fields


def world(rate: float, *jobs: tuple[str, str, str, dict[str, Any]]) -> Snapshot:
    """Two nodes of two GPUs, and a service whose instance carries some 300 requests a second with a GPU of its own."""
    latency = {"1": {"50": 10, "100": 6}, "8": {"50": 40, "100": 25}}
    profile = {"model": "m", "variant": "v", "gpuType": "big", "latencyMs": latency, "memoryGib": {"1": 4, "8": 8}}
    slo = {"latencyMs": 200, "percentile": 98}
    gpu = {"memoryGib": 16, "smCount": 80, "pricePerHour": 2, "idleW": 40, "maxW": 300, "clocksMhz": [1500]}
    return Snapshot(
        at=NOON, epoch=1, nodes={node: NodeStatus(node, "reporting") for node in NODES},
        declared=declared(
            ("GpuType", "", "big", gpu),
            *(("Node", "", n, {"gpuType": "big", "gpus": 2, "cpuCores": 64, "memoryGib": 512}) for n in NODES),
            ("Model", "", "m", {"variants": [{"name": "v", "accuracy": 0.8}]}),
            ("Profile", "", "m", profile),
            ("Service", "shop", "s", {"model": "m", "slo": slo, "ratePerSecond": rate}),
            ("Policy", "", "default", {"mode": "auto", "pricing": "gpu"}),
            *jobs,
        ),
        expected={"shop/s": ExpectedLoad(rate)},
    )  # fmt: skip


def solved(snapshot: Snapshot) -> Plan:
    plan = Inline().solve(formulate(snapshot).problem, seconds=0, work=4).plan
    assert plan
    return plan


def in_force(snapshot: Snapshot, plan: Plan) -> Snapshot:
    desired = assign_plan(snapshot, formulate(snapshot), plan)
    recorded = msgspec.json.decode(msgspec.json.encode(desired), type=dict[str, NodeDesired])
    assert recorded == desired
    return replace(snapshot, in_force=recorded, assigned={}, target=1)


def seats(desired: Desired) -> list[tuple[str, tuple[int, ...]]]:
    return [(node, line.all_gpus) for node, wanted in desired.items() for line in wanted.instances if line.job]


def test_it_is_assigned_whole_gpus_that_are_set_for_it_and_explained() -> None:
    snapshot = world(200, job())
    plan = solved(snapshot)
    held = in_force(snapshot, plan).in_force
    ((node, gpus),) = seats(held)
    assert gpus == (0, 1)
    (line,) = [line for line in held[node].instances if line.job]
    assert (line.is_wide, line.sm_percent, line.preemptible) == (True, 100, True)
    assert {gpu.index for gpu in held[node].gpus} == {0, 1}
    problem = formulate(snapshot).problem
    assert why_job(problem, plan, TRAIN, NOON).sentences[0].startswith("lab/train is queued, and is to run on")
    words = why_job(problem, plan, TRAIN, NOON, JobProgress("running")).sentences
    assert f"lab/train runs on {node}/0,1 (big), whole GPUs, 2 of them, at 3 steps a second" in words[0]
    assert "at 4 an hour" in words[1]


@pytest.mark.slow
def test_it_keeps_its_gpus_until_a_service_lacks_capacity() -> None:
    snapshot = world(200, job())
    held = in_force(snapshot, solved(snapshot))
    question = formulate(held)
    assert not question.problem.jobs[TRAIN].is_preemptible
    assert seats(assign_plan(held, question, solved(held))) == seats(held.in_force)
    risen = replace(held, expected={"shop/s": ExpectedLoad(1000.0)})
    question = formulate(risen)
    assert question.problem.jobs[TRAIN].is_preemptible
    plan = solved(risen)
    assert not plan.unserved
    assert [entry.job for entry in plan.unplaced] == [TRAIN]


def test_it_starts_beside_services_that_a_search_would_change_to_no_purpose() -> None:
    snapshot = world(500, job())
    services = solved(world(500))
    held = in_force(snapshot, services)
    question = formulate(held)
    one, *others = question.plan_in_force.instances
    assert others
    shifted = (
        replace(one, rate_per_second=one.rate_per_second - 5, batch_timeout_ms=one.batch_timeout_ms / 2),
        replace(others[0], rate_per_second=others[0].rate_per_second + 5), *others[1:],
    )  # fmt: skip
    found = place_jobs(question.problem, shifted)
    plan = replace(question.plan_in_force, instances=found.instances, jobs=found.jobs, unplaced=found.unplaced)
    decision = draft_changes(held, question, SolverAnswer(SolveOutcome.SOLVED, plan))
    assert decision.answer.outcome is SolveOutcome.SOLVED, decision.answer.message
    made = hold_back(held, question, decision)
    assert decision.plan.changes.retune
    assert [held_back.reason for held_back in made.held_back] == [Reason.NOT_WORTH_ITS_CHURN]
    assert len(seats(made.desired)) == 1
    before, after = (
        [line for wanted in desired.values() for line in wanted.instances if not line.job]
        for desired in (held.in_force, made.desired)
    )
    assert before == after


def test_while_it_waits_it_is_tried_again_once_more_whole_gpus_of_a_node_are_free() -> None:
    snapshot = world(200, job())
    work = read_declared_work(snapshot.declared)[TRAIN]
    free = in_force(world(200, job()), replace(solved(world(200)), jobs=()))
    room = widest_free(free_capacity(free), work)
    assert room == {"big": 200}, "a node has both of its GPUs free"
    busy = in_force(world(900, job()), solved(world(900)))
    assert widest_free(free_capacity(busy), work)["big"] < 200
    facts = queue_jobs(replace(free, at=NOON + timedelta(hours=1)))
    assert facts.order == (TRAIN,)
