"""Costs and changes of plans, checked by hand on a fleet of seven GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from solvers.planning.judge import judge
from solvers.planning.judge.busy import busy_fraction
from solvers.planning.judge.readings import value_at
from solvers.planning.plan import Certificate, Changes, Cost, Plan, Releasable, Unplaced, Unserved
from solvers.planning.problem import Instance, PlacedJob, Problem, RunningState
from tests.solvers.planning.small_world import NOON, instance, plan, problem


def cost(problem: Problem, plan: Plan) -> Cost:
    return judge(problem, plan, simulate=False).cost


def exec_ms(problem: Problem, plan: Plan) -> list[float]:
    from solvers.planning.judge import JudgedPlan

    return [line.exec_ms or 0.0 for line in JudgedPlan(problem, plan).residents]


def test_a_curve_is_linear_between_its_points_and_flat_beyond() -> None:
    curve = ((20, 32.0), (40, 16.0), (80, 12.0))
    assert [value_at(curve, sm) for sm in (10, 20, 30, 40, 60, 80, 90)] == [32, 32, 24, 16, 14, 12, 12]


def test_execution_grows_with_the_neighbours_pressure_and_the_slower_clock() -> None:
    # Pressure at 40 SM%: 0.1 + 0.9 x 30 / 90 = 0.4; sensitivity 0.2. A training job presses with 0.2.
    alone, with_job = 16.0, 16 * (1 + 0.2 * 0.2)
    beside = 16 * (1 + 0.2 * 0.4)
    search_0, search_1, rank, by_itself = exec_ms(problem(), plan())
    assert (search_0, search_1, rank) == pytest.approx((with_job, beside, beside))
    assert by_itself == alone
    slow = replace(plan(), instances=tuple(replace(instance, clock_mhz=600) for instance in plan().instances))
    assert exec_ms(problem(), slow) == pytest.approx([2 * time for time in exec_ms(problem(), plan())])


def test_where_shares_are_paid_what_is_left_of_a_gpu_presses_too() -> None:
    # n1/0: 40 + 40 of 100 SM% taken, 0.5 x 0.2 left; n1/1 the same; n2/0: 0.5 x 0.6.
    shared = exec_ms(problem(pricing="share"), plan())
    whole = exec_ms(problem(), plan())
    assert shared == pytest.approx(
        [time * (1 + 0.2 * left) for time, left in zip(whole, (0.1, 0.1, 0.1, 0.3), strict=True)]
    )


def test_whole_gpus_are_paid_where_services_run() -> None:
    assert cost(problem(), plan()).resource == 2 + 2 + 2


def test_shares_are_paid_by_the_larger_of_sm_and_memory_and_wholly_for_a_dedicated_service() -> None:
    # n1/0 is 40 % taken by services; n1/1 80 % by SM; n2/0 is dedicated. The job's share is not paid.
    assert cost(problem(pricing="share"), plan()).resource == pytest.approx(2 * (0.4 + 0.8 + 1.0))
    instances = list(plan().instances)
    instances[0] = replace(instances[0], memory_gib=12.0)
    large = replace(plan(), instances=tuple(instances))
    assert cost(problem(pricing="share"), large).resource == pytest.approx(2 * (0.75 + 0.8 + 1.0))


def test_energy_is_paid_for_gpus_that_services_run_on_and_a_jobs_own_is_its_cost() -> None:
    # 40 W idle on each of three; an instance draws 20 + 90 x 30 / 90 = 50 W while it is busy; a job 30 W.
    busy = [busy_fraction(4, time, 20, 0) for time in exec_ms(problem(), plan())]
    found = cost(problem(energy_price_per_kwh=0.5), plan())
    assert found.resource == pytest.approx(6 + (3 * 40 + 50 * sum(busy)) / 1000 * 0.5)
    assert found.job == pytest.approx(50 + 2 * 30 / 1000 * 0.5)


def test_unserved_is_paid_by_priority_and_as_one_request_at_least() -> None:
    assert cost(problem(), plan()).unserved == 10_000
    whole = problem()
    dear = {**whole.services, "shop/rank": replace(whole.services["shop/rank"], priority=250)}
    little = replace(plan(), unserved=(Unserved("shop/rank", 0.2),))
    assert cost(replace(whole, services=dear), little).unserved == 2500
    none = replace(plan(), unserved=(Unserved("shop/rank", 0.000_29),))  # below 1e-5 of 30
    assert cost(whole, none).unserved == 0


@pytest.mark.parametrize(
    ("fields", "jobs", "unplaced", "costs"),
    [
        pytest.param({}, (), ("lab/late", "lab/tune"), 50 + 50 + 0.01, id="unplaced, and waiting"),
        pytest.param({"priority": 300}, (), ("lab/late", "lab/tune"), 50 + 50 + 0.03, id="by priority"),
        pytest.param({"max_price_per_hour": 2.5}, (), ("lab/late", "lab/tune"), 50 + 50 + 2.5, id="what it would pay"),
        pytest.param({}, (("lab/slow", "n3", 0),), ("lab/late", "lab/tune"), 100, id="owned GPUs cost nothing"),
        pytest.param({}, (("lab/tune", "n1", 0),), ("lab/late",), 50 + 0.01, id="nor those that services pay for"),
        pytest.param({}, (("lab/tune", "n2", 1),), ("lab/late",), 50 + 0.01 + 2, id="another is paid"),
        pytest.param(
            {}, (("lab/tune", "n2", 1), ("lab/slow", "n2", 1)), ("lab/late",), 50 + 2, id="once, however many run there"
        ),
    ],
)  # fmt: skip
def test_jobs_cost_what_they_open_and_what_they_wait(
    fields: dict[str, Any], jobs: Any, unplaced: Any, costs: float
) -> None:
    whole = problem()
    slow = replace(whole.jobs["lab/slow"], **fields)
    placed = tuple(PlacedJob(job, node, gpu, 20, 4) for job, node, gpu in jobs)
    decided = replace(plan(), jobs=placed, unplaced=tuple(map(Unplaced, unplaced)))
    found = judge(replace(whole, jobs={**whole.jobs, "lab/slow": slow}), decided, simulate=False)
    assert found.cost.job == pytest.approx(costs)
    assert found.cost.total == found.cost.resource + found.cost.unserved
    assert found.is_right


# Changes


def running(*instances: Instance) -> Problem:
    return replace(problem(), state=RunningState(now=NOON.replace(hour=11), running=instances))


def judged_changes(*instances: Instance) -> Changes:
    return judge(running(*instances), plan(), simulate=False).changes


def test_without_anything_running_all_is_started_and_without_a_state_it_costs_no_churn() -> None:
    verdict = judge(replace(problem(), state=None), plan(), simulate=False)
    assert verdict.changes == Changes(start=4)
    assert verdict.cost.churn == 0


def test_a_plan_equal_to_what_runs_keeps_everything_whatever_the_ids() -> None:
    renamed = [
        replace(instance, id=f"other-{at}", exec_ms=3.0) for at, instance in enumerate(reversed(plan().instances))
    ]
    verdict = judge(running(*renamed), plan(), simulate=False)
    assert verdict.changes == Changes(keep=4)
    assert verdict.cost.churn == 0


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"rate_per_second": 20 * (1 + 2e-9)}, Changes(keep=3, retune=1)),
        ({"rate_per_second": 20 * (1 + 1e-10)}, Changes(keep=4)),
        ({"batch": 1}, Changes(keep=3, retune=1)),
        ({"batch_timeout_ms": 1.0}, Changes(keep=3, retune=1)),
        ({"clock_mhz": 600}, Changes(keep=3, retune=1)),
        ({"sm_percent": 30}, Changes(keep=3, resize=1)),
        ({"memory_gib": 3.0}, Changes(keep=3, resize=1)),
        ({"variant": "w"}, Changes(keep=3, resize=1)),
        ({"node": "n2", "gpu": 1}, Changes(keep=3, move=1)),
        ({"service": "shop/rank"}, Changes(keep=3, start=1, stop=1)),
    ],
)
def test_one_difference_is_one_change(fields: dict[str, Any], expected: Changes) -> None:
    first, *others = plan().instances
    assert judged_changes(replace(first, **fields), *others) == expected


def test_a_keep_is_found_before_its_twin_takes_its_partner() -> None:
    twins = [instance("shop/search", "n1", 0, rate_per_second=rate) for rate in (20.0, 5.0)]
    decided = replace(plan(), instances=(twins[0],))
    assert judge(running(twins[1], twins[0]), decided, simulate=False).changes == Changes(keep=1, stop=1)
    decided = replace(plan(), instances=tuple(twins))
    other = replace(twins[0], batch=1)
    assert judge(running(other, twins[1]), decided, simulate=False).changes == Changes(keep=1, retune=1)


def test_starts_moves_and_resizes_cost_churn_by_price_and_share() -> None:
    search_0, search_1, rank, _ = plan().instances
    ran = [replace(search_0, sm_percent=20), replace(search_1, batch=1), replace(rank, node="n2", gpu=1)]
    verdict = judge(running(*ran), plan(), simulate=False)
    assert verdict.changes == Changes(retune=1, resize=1, start=1, move=1)
    assert verdict.cost.churn == pytest.approx(0.05 * 3 * 2 * 0.4)


# Claims


def test_what_a_plan_says_of_itself_is_checked_and_breaks_no_rule() -> None:
    verdict = judge(problem(), plan(), simulate=False)
    predicted = tuple(
        replace(instance, exec_ms=exec_ms)
        for instance, exec_ms in zip(plan().instances, exec_ms(problem(), plan()), strict=True)
    )
    claiming = replace(
        plan(),
        instances=predicted,
        changes=verdict.changes,
        releasable=(Releasable("n4", 1.0),),
        certificate=Certificate(verdict.cost, verdict.cost.total / 2, "by hand", 0, 0.0),
    )
    assert judge(problem(), claiming, simulate=False).misstated == ()
    wrong = replace(
        claiming,
        instances=(replace(predicted[0], exec_ms=predicted[0].exec_ms * 1.05), *predicted[1:]),
        jobs=(replace(plan().jobs[0], units_per_second=9.0), plan().jobs[1]),
        changes=Changes(start=3),
        releasable=(Releasable("n1", 4.0), Releasable("n4", 2.0), Releasable("n9", 1.0)),
        certificate=Certificate(Cost(5.0, 10_000), 10_007, "by hand", 0, 0.0),
    )
    found = judge(problem(), wrong, simulate=False)
    assert found.is_right
    assert sorted(claim.rule for claim in found.misstated) == [
        "bound_told", "changes_told", *["cost_told"] * 3, "exec_told", *["releasable_told"] * 3, "speed_told",
    ]  # fmt: skip
