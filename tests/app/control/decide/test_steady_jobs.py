"""Jobs stay where they run unless moving pays for a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.control.decide.steady_jobs import keep_jobs_steady
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import (
    Demand,
    GpuType,
    Instance,
    Job,
    JobProfile,
    Node,
    PlacedJob,
    Problem,
    Profile,
    RunningState,
    Service,
    Variant,
)
from solvers.planning.search.promise import keep

SPEEDS = JobProfile(((20, 2.0), (60, 3.0), (80, 3.1)), 4.0, Demand(pressure=((100, 0.2),)))
S = "shop/search"
LINE = Instance("s1", S, "n1", 0, "v", 1, 0.0, 40, 1.0, 1200.0, 20.0)


def problem(*jobs: PlacedJob, units: float = 100_000.0) -> Problem:
    """Two owned GPUs, a service on the first."""
    return Problem(
        gpu_types={"big": GpuType("big", 16, 40, 300, (1200.0,))},
        nodes={"n1": Node("n1", "big", (0, 1), 64, 512, 2.0, purchase="owned")},
        models={"m": (Variant("v", 0.8),)},
        profiles={("m", "v", "big"): Profile("m", "v", "big", {1: ((20, 20.0), (80, 8.0))}, {1: 1.0})},
        services={S: Service(S, "shop", "m", ("v",), 100.0, 95.0, 20.0)},
        jobs={"lab/tune": Job("lab/tune", "lab", "training", units, {"big": SPEEDS})},
        state=RunningState(running=(LINE,), jobs=jobs),
    )


def plan(job: PlacedJob) -> Plan:
    return Plan((LINE,), jobs=(job,))


def on(gpu: int, sm: int, pace: float) -> PlacedJob:
    return PlacedJob("lab/tune", "n1", gpu, sm, 4.0, pace)


def test_a_slightly_faster_place_or_share_is_not_worth_a_restart() -> None:
    for new in (on(1, 80, 3.1), on(0, 58, 2.95)):
        question = problem(on(0, 60, 3.0))
        found = keep_jobs_steady(question, plan(new), {})
        assert (found.jobs[0].place, found.jobs[0].sm_percent) == (("n1", 0), 60)
        verdict = judge(question, found, simulate=False, keeps=keep)
        assert verdict.is_right
        assert not [violation for violation in verdict.misstated if violation.where != "plan"]


def test_much_faster_is() -> None:
    question = problem(on(0, 20, 2.0))
    assert keep_jobs_steady(question, plan(on(1, 80, 3.1)), {}).jobs == (on(1, 80, 3.1),)


def test_who_is_nearly_done_stays_however_much_faster_it_would_be() -> None:
    question = problem(on(0, 20, 2.0), units=100.0)
    assert keep_jobs_steady(question, plan(on(1, 80, 3.1)), {}).jobs[0].place == ("n1", 0)


def test_a_job_in_host_memory_goes_on_where_it_ran_unless_elsewhere_is_much_faster() -> None:
    question = problem()
    assert question.state
    waits = replace(question, state=replace(question.state, swapped=(on(0, 58, 0.0),)))
    assert keep_jobs_steady(waits, plan(on(1, 60, 3.0)), {}).jobs[0].places == (("n1", 0),)
    slow = replace(question, state=replace(question.state, swapped=(on(0, 20, 0.0),)))
    assert keep_jobs_steady(slow, plan(on(1, 80, 3.1)), {}).jobs == (on(1, 80, 3.1),)


def test_a_place_that_is_no_longer_free_is_not_gone_back_to() -> None:
    question = problem(on(0, 60, 3.0))
    grown = replace(LINE, sm_percent=60)
    new = on(0, 40, 2.5)
    assert keep_jobs_steady(question, Plan((grown,), jobs=(new,)), {}).jobs == (new,)


def test_a_job_that_did_not_run_is_left_where_the_plan_has_it() -> None:
    assert keep_jobs_steady(problem(), plan(on(1, 80, 3.1)), {}).jobs == (on(1, 80, 3.1),)


@pytest.mark.parametrize("pace", [2.0, 3.0])
def test_what_stays_is_the_very_same_plan(pace: float) -> None:
    question, made = problem(on(0, 60, 3.0)), plan(on(0, 60, pace))
    assert keep_jobs_steady(question, made, {}) is made
