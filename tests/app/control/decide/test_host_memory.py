"""Preempted jobs wait in the host memory of their nodes, where their manifests allow it and nothing else needs it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from app.control.decide.assigning import assign_plan
from app.control.decide.decide import draft_changes
from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.domain.desired import Desired, NodeDesired
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, JobProgress, NodeStatus, Snapshot
from app.control.formulate.formulate import formulate
from app.control.solve.inline import Inline
from solvers.planning.plan import Plan

pytestmark = pytest.mark.slow

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TRAIN = "lab/train"


def world(rate: float, host_gib: float = 64, **fields: Any) -> Snapshot:
    """A GPU that a service needs alone at 500 requests a second, and leaves half of at 60."""
    latency = {"1": {"50": 10, "100": 6}, "8": {"50": 40, "100": 25}}
    profile = {
        "model": "m",
        "variant": "v",
        "gpuType": "big",
        "latencyMs": latency,
        "memoryGib": {"1": 4, "8": 8},
    }
    gpu = {"memoryGib": 16, "smCount": 80, "pricePerHour": 2, "idleW": 40, "maxW": 300, "clocksMhz": [1500]}
    runs = {"stepsPerSecond": {"20": 1.0, "40": 2.0}, "memoryGib": 6, "hostMemoryGib": 10}
    job = {"type": "training", "steps": 10**6, "swap": True, "maxPricePerHour": 20, "profiles": {"big": runs}} | fields
    objects: list[tuple[str, str, str, dict[str, Any]]] = [
        ("GpuType", "", "big", gpu),
        ("Job", "lab", "train", job),
        ("Model", "", "m", {"variants": [{"name": "v", "accuracy": 0.8}]}),
        ("Node", "", "n1", {"gpuType": "big", "gpus": 1, "cpuCores": 64, "memoryGib": host_gib}),
        ("Policy", "", "default", {"mode": "auto", "pricing": "gpu"}),
        ("Profile", "", "m", profile),
        ("Service", "shop", "s", {"model": "m", "slo": {"latencyMs": 200, "percentile": 98}, "ratePerSecond": rate}),
    ]
    return Snapshot(
        at=NOON, epoch=1, nodes={"n1": NodeStatus("n1", "reporting")},
        declared=tuple(DeclaredObject(*item) for item in objects), expected={"shop/s": ExpectedLoad(rate)},
    )  # fmt: skip


def solved(snapshot: Snapshot) -> Plan:
    plan = Inline().solve(formulate(snapshot).problem, seconds=0, work=4).plan
    assert plan
    return plan


def wanted(snapshot: Snapshot) -> Desired:
    return assign_plan(snapshot, formulate(snapshot), solved(snapshot))


def running(rate: float, **fields: Any) -> Snapshot:
    """Returns a fleet at this rate on which service and job run as planned at 60 requests a second."""
    before = world(60, **fields)
    recorded = msgspec.json.decode(msgspec.json.encode(wanted(before)), type=dict[str, NodeDesired])
    assert [line.owner for line in recorded["n1"].instances if line.job] == [TRAIN]
    return replace(world(rate, **fields), in_force=recorded, target=1)


def test_a_job_that_makes_way_waits_as_it_ran() -> None:
    snapshot = running(500)
    before = {line.id: line for line in snapshot.in_force["n1"].instances}
    found = wanted(snapshot)["n1"]
    assert [line.owner for line in found.instances] == ["shop/s"]
    (line,) = found.swapped
    assert (line.owner, before[line.id]) == (TRAIN, line)
    assert line.terms and line.terms.swaps


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"swap": False}, "its manifest does not say that it can"),
        ({"host_gib": 15}, "16 GiB would be needed: its 6 of the GPU and its own 10"),
    ],
)
def test_it_is_ended_where(fields: dict[str, Any], why: str) -> None:
    assert wanted(running(500, **fields))["n1"].swapped == (), why


def test_it_is_ended_where_its_context_would_not_fit_on_the_gpu() -> None:
    snapshot = running(500)
    question, plan = formulate(snapshot), solved(snapshot)
    for memory_gib, kept in ((15.0, 1), (15.5, 0)):
        lines = tuple(replace(line, memory_gib=memory_gib) for line in plan.instances)
        assert len(assign_plan(snapshot, question, replace(plan, instances=lines))["n1"].swapped) == kept


def test_it_is_ended_once_what_is_planned_needs_the_memory() -> None:
    waiting = replace(running(500), in_force=wanted(running(500)))
    assert waiting.in_force["n1"].swapped
    smaller = tuple(
        replace(item, spec={**item.spec, "memoryGib": 15}) if item.kind == "Node" else item for item in waiting.declared
    )
    assert wanted(replace(waiting, declared=smaller))["n1"].swapped == ()


@pytest.mark.parametrize(
    "facts", [NodeStatus("n1", "silent"), NodeStatus("n1", "reporting", cordoned_gpus=(0,))], ids=["silent", "cordoned"]
)
def test_where_nothing_may_be_planned_it_goes_on_waiting(facts: NodeStatus) -> None:
    first = running(500)
    waiting = replace(first, in_force=wanted(first), nodes={"n1": facts})
    found = assign_plan(waiting, formulate(waiting), Plan(()))["n1"]
    assert found.swapped == waiting.in_force["n1"].swapped
    assert [line.owner for line in found.instances] == ["shop/s"]
    runs = replace(first, nodes={"n1": facts})
    assert assign_plan(runs, formulate(runs), Plan(()))["n1"].swapped == (), "what runs there goes on running"


def test_it_is_ended_where_its_gpu_is_drained_its_node_is_lost_or_it_is_over() -> None:
    waiting = replace(running(500), in_force=wanted(running(500)))
    question, plan = formulate(waiting), solved(waiting)
    for facts in (NodeStatus("n1", "reporting", draining_gpus=(0,)), NodeStatus("n1", "lost")):
        assert assign_plan(replace(waiting, nodes={"n1": facts}), question, plan)["n1"].swapped == ()
    over = replace(waiting, jobs={TRAIN: JobProgress("failed")})
    assert assign_plan(over, question, plan)["n1"].swapped == ()


def test_it_goes_on_as_the_same_instance_where_it_ran() -> None:
    first = running(500)
    waiting = replace(first, in_force=wanted(first))
    calm = replace(waiting, declared=world(60).declared, expected={"shop/s": ExpectedLoad(60)})
    question = formulate(calm)
    state = question.problem.state
    assert state and [placed.job for placed in state.swapped] == [TRAIN]
    decision = draft_changes(calm, question, SolverAnswer(SolveOutcome.SOLVED, solved(world(60))))
    back = [line for line in decision.desired["n1"].instances if line.job]
    assert [line.id for line in back] == [line.id for line in waiting.in_force["n1"].swapped]
    assert back[0].sm_percent == waiting.in_force["n1"].swapped[0].sm_percent
    assert decision.desired["n1"].swapped == ()
