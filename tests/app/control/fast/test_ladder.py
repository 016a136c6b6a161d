"""The cheapest step that restores a promise: batches, then SM% in the slack, then new instances."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.control.fast import CapacityNeed, QuickStep, StepKind, StepTrigger
from app.control.fast.ladder import cost_delta
from app.control.solve.inline import Inline
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import (
    Demand,
    GpuType,
    Instance,
    Job,
    JobProfile,
    Limit,
    Node,
    PlacedJob,
    Policy,
    Problem,
    Profile,
    RunningState,
    Service,
    Variant,
    gpu_indexes,
)
from solvers.planning.search.promise import keep
from solvers.planning.solve import SolveBudget, solve
from tests.app.control.fast.quick_steps import Silent, quick_step
from tests.solvers.planning.small_fleets import fleets
from tests.support.soak import SOAK

S, T = "shop/search", "shop/rank"
# At 40 SM%: 10 ms for a batch of 1, 16 ms for one of 4.
LATENCY = {1: ((20, 20.0), (40, 10.0), (80, 8.0)), 4: ((20, 32.0), (40, 16.0), (80, 9.0))}
FEELS = Demand(pressure=((20, 0.1), (80, 0.4)), sensitivity=0.2)


def fleet(
    gpus: int = 2, nodes: int = 2, memory_gib: float = 16.0, demand: Demand = FEELS, four_gib: float = 2.0
) -> Problem:
    return Problem(
        gpu_types={"big": GpuType("big", memory_gib, 40, 300, (1200.0,))},
        nodes={f"n{n}": Node(f"n{n}", "big", gpu_indexes(gpus), 64, 512, 2.0) for n in range(nodes)},
        models={"m": (Variant("v", 0.8),), "k": (Variant("v", 0.8),)},
        profiles={
            (model, "v", "big"): Profile(model, "v", "big", LATENCY, {1: 1.0, 4: four_gib}, demand)
            for model in ("m", "k")
        },
        services={
            S: Service(S, "shop", "m", ("v",), 100.0, 95.0, 40.0),
            T: Service(T, "shop", "k", ("v",), 100.0, 95.0, 40.0, priority=200),
        },
        policy=Policy(),
    )


def line(service: str, node: str, gpu: int, **fields: object) -> Instance:
    made = Instance(f"{service}-{node}-{gpu}", service, node, gpu, "v", 1, 0.0, 40, 2.0, 1200.0, 40.0)
    return replace(made, **fields)  # type: ignore[arg-type]


def running(problem: Problem, *lines: Instance, jobs: tuple[PlacedJob, ...] = ()) -> tuple[Problem, Plan]:
    """These run and carry all the load of their services; other services have no load."""
    rates: dict[str, float] = {}
    for instance in lines:
        rates[instance.service] = rates.get(instance.service, 0.0) + instance.rate_per_second
    services = {name: replace(problem.services[name], rate_per_second=rate) for name, rate in rates.items()}
    problem = replace(problem, services=services, state=RunningState(running=lines, jobs=jobs))
    plan = Plan(lines, jobs)
    assert judge(problem, plan, simulate=False, keeps=keep).is_right
    return problem, plan


def call(service: str, rate: float, least: float = 0.0) -> CapacityNeed:
    return CapacityNeed(service, StepTrigger.LOAD_ROSE, rate, least or rate, "")


def is_right(problem: Problem, quick: QuickStep) -> bool:
    verdict = judge(problem.change_rates(quick.rates), quick.plan, simulate=False, keeps=keep)
    return verdict.is_right and not [
        violation for violation in verdict.misstated if "certificate" not in violation.rule
    ]


def test_a_larger_batch_inside_the_memory_it_has_comes_first() -> None:
    problem, plan = running(fleet(), line(S, "n0", 0), line(T, "n1", 0))
    quick = quick_step(problem, plan, [call(S, 120.0)], Silent())
    assert quick
    assert quick.rungs == {S: StepKind.RETUNE}
    [after] = [instance for instance in quick.plan.instances if instance.service == S]
    assert (after.id, after.batch, after.sm_percent, after.memory_gib) == (plan.instances[0].id, 4, 40, 2.0)
    assert after.rate_per_second == pytest.approx(120.0)
    assert cost_delta(problem, plan, quick.plan) == 0.0
    assert quick.plan.instances[1] == plan.instances[1]
    assert is_right(problem, quick)


def test_the_batch_that_it_has_is_kept_where_it_suffices() -> None:
    problem, plan = running(fleet(), line(S, "n0", 0, rate_per_second=20.0))
    quick = quick_step(problem, plan, [call(S, 40.0)], Silent())
    assert quick
    assert quick.plan.instances[0].batch == 1
    assert quick.rates == {S: 40.0}


def test_a_rate_is_spread_in_proportion_to_what_each_may_carry() -> None:
    problem, plan = running(
        fleet(demand=Demand()), line(S, "n0", 0, sm_percent=20, rate_per_second=10.0, memory_gib=1.0),
        line(S, "n1", 0, sm_percent=40, rate_per_second=10.0, memory_gib=1.0),
    )  # fmt: skip
    quick = quick_step(problem, plan, [call(S, 60.0)], Silent())
    assert quick
    small, large = (instance.rate_per_second for instance in quick.plan.instances)
    assert small + large == pytest.approx(60.0)
    assert large > 2 * small  # it is twice as fast, and further from its cliff
    assert is_right(problem, quick)


NO_BATCHES = 99.0  # GiB that a batch of 4 would need


def test_a_copy_with_more_memory_and_sm_percent_of_the_slack_come_next() -> None:
    problem, plan = running(fleet(), line(S, "n0", 0, memory_gib=1.0))
    quick = quick_step(problem, plan, [call(S, 100.0)], Silent())
    assert quick
    assert quick.rungs == {S: StepKind.RESIZE}
    [after] = quick.plan.instances
    assert after.place == ("n0", 0)
    assert (after.sm_percent, after.batch, after.memory_gib) == (40, 4, 2.0)
    assert is_right(problem, quick)


def test_the_smallest_share_that_suffices_is_taken() -> None:
    problem, plan = running(fleet(four_gib=NO_BATCHES), line(S, "n0", 0, memory_gib=1.0))
    shares = []
    for rate in (82.0, 90.0, 98.0):
        quick = quick_step(problem, plan, [call(S, rate)], Silent())
        assert quick
        assert quick.rung is StepKind.RESIZE
        assert is_right(problem, quick)
        shares.append(quick.plan.instances[0].sm_percent)
    assert 40 < shares[0] < shares[1] < shares[2] <= 80


def test_a_resize_needs_memory_for_both_copies() -> None:
    for memory_gib, rung in ((1.9, StepKind.PARTLY), (2.0, StepKind.RESIZE)):
        problem, plan = running(fleet(memory_gib=memory_gib, four_gib=NO_BATCHES), line(S, "n0", 0, memory_gib=1.0))
        quick = quick_step(problem, plan, [call(S, 90.0)], Silent())
        assert quick
        assert quick.rung is rung


def test_under_a_strict_hand_over_both_copies_share_the_sms_too() -> None:
    problem, plan = running(fleet(four_gib=NO_BATCHES), line(S, "n0", 0, sm_percent=55, memory_gib=1.0))
    loose = quick_step(problem, plan, [call(S, 98.0)], Silent())
    strict = quick_step(problem, plan, [call(S, 98.0)], Silent(), strict=True)
    assert loose
    assert loose.rung is StepKind.RESIZE
    assert strict is None or strict.rung is StepKind.PARTLY


def test_a_neighbour_that_bears_no_more_keeps_an_instance_from_growing() -> None:
    problem = fleet(four_gib=NO_BATCHES)
    for beside, rung in ((40.0, StepKind.RESIZE), (76.0, StepKind.PARTLY)):
        whole, plan = running(
            problem, line(S, "n0", 0, memory_gib=1.0), line(T, "n0", 0, memory_gib=1.0, rate_per_second=beside)
        )
        quick = quick_step(whole, plan, [call(S, 84.0)], Silent())
        assert quick
        assert quick.rung is rung
        assert is_right(whole, quick)


def test_a_need_that_does_not_fit_its_gpus_gets_new_instances() -> None:
    problem, plan = running(fleet(), line(S, "n0", 0))
    quick = quick_step(problem, plan, [call(S, 700.0)], Inline())
    assert quick
    assert quick.rungs == {S: StepKind.START}
    assert len(quick.plan.instances) > 1
    assert cost_delta(problem, plan, quick.plan) == pytest.approx(
        2.0 * (len({instance.place for instance in quick.plan.instances}) - 1)
    )
    assert is_right(problem, quick)


def test_where_nothing_suffices_what_batches_give_is_taken() -> None:
    problem, plan = running(fleet(), line(S, "n0", 0))
    quick = quick_step(problem, plan, [call(S, 700.0)], Silent())
    assert quick
    assert quick.rungs == {S: StepKind.PARTLY}
    assert 40 < quick.plan.instances[0].rate_per_second < 700
    assert quick.unserved[S] == pytest.approx(700 - quick.plan.instances[0].rate_per_second)
    assert is_right(problem, quick)


def test_the_cheaper_step_is_enough_for_a_rise_that_hardly_continues() -> None:
    problem, plan = running(fleet(), line(S, "n0", 0))
    most = quick_step(problem, plan, [call(S, 9_999.0)], Silent())
    assert most
    reach = most.plan.instances[0].rate_per_second
    quick = quick_step(problem, plan, [call(S, reach * 1.1, least=reach)], Inline())
    assert quick
    assert quick.rung is not StepKind.START
    assert quick.rates[S] == pytest.approx(reach)


def test_where_a_trend_asks_for_much_more_new_instances_start_at_once() -> None:
    problem, plan = running(fleet(), line(S, "n0", 0))
    quick = quick_step(problem, plan, [call(S, 700.0, least=120.0)], Inline())
    assert quick
    assert quick.rungs == {S: StepKind.START}
    assert quick.rates == {S: 700.0}


def test_what_is_only_foreseen_and_finds_no_room_is_no_demand_yet() -> None:
    problem, plan = running(fleet(gpus=1, nodes=1), line(S, "n0", 0))
    quick = quick_step(problem, plan, [call(S, 5_000.0, least=120.0)], Inline())
    assert quick
    assert quick.unserved == {}
    assert 120.0 <= quick.rates[S] < 5_000.0
    assert is_right(problem, quick)


def test_without_an_answer_for_the_trend_the_cheaper_step_is_taken() -> None:
    problem, plan = running(fleet(), line(S, "n0", 0))
    quick = quick_step(problem, plan, [call(S, 700.0, least=120.0)], Silent())
    assert quick
    assert quick.rungs == {S: StepKind.RETUNE}
    assert quick.rates == {S: 120.0}


def test_who_serves_more_important_work_chooses_first() -> None:
    demand = replace(FEELS, sensitivity=0.0)
    problem, plan = running(
        fleet(demand=demand, four_gib=NO_BATCHES), line(S, "n0", 0, memory_gib=1.0), line(T, "n0", 0, memory_gib=1.0)
    )
    quick = quick_step(problem, plan, [call(S, 86.0), call(T, 86.0)], Silent())
    assert quick
    assert quick.rungs == {S: StepKind.PARTLY, T: StepKind.RESIZE}
    assert is_right(problem, quick)


def jobs_beside(preemptible: bool, deadline: bool = False) -> tuple[Problem, Plan]:
    speeds = JobProfile(((20, 1.0), (60, 3.0)), 4.0, Demand(pressure=((100, 0.2),)))
    job = Job("lab/tune", "lab", "training", 1000, {"big": speeds}, is_preemptible=preemptible)
    problem = replace(fleet(gpus=1, nodes=1, four_gib=NO_BATCHES), jobs={"lab/tune": job})
    return running(problem, line(S, "n0", 0, memory_gib=1.0), jobs=(PlacedJob("lab/tune", "n0", 0, 58, 4.0, 3.0),))


def test_a_preemptible_job_makes_way_for_a_service() -> None:
    problem, plan = jobs_beside(preemptible=True)
    quick = quick_step(problem, plan, [call(S, 90.0)], Inline())
    assert quick
    assert quick.rungs == {S: StepKind.RESIZE}
    assert quick.plan.jobs == ()
    assert [job.job for job in quick.plan.unplaced] == ["lab/tune"]
    assert is_right(problem, quick)


def test_a_job_that_is_not_preemptible_stays() -> None:
    problem, plan = jobs_beside(preemptible=False)
    quick = quick_step(problem, plan, [call(S, 90.0)], Inline())
    assert quick is None or quick.plan.jobs == plan.jobs


def test_a_service_never_pays_for_a_gpu_that_a_job_could_leave_it() -> None:
    problem, plan = jobs_beside(preemptible=True)
    problem = replace(problem, nodes={**problem.nodes, "n9": Node("n9", "big", (0, 1), 64, 512, 2.0)})
    quick = quick_step(problem, plan, [call(S, 90.0)], Inline())
    assert quick
    assert cost_delta(problem, plan, quick.plan) == 0.0
    assert [job.job for job in quick.plan.unplaced] == ["lab/tune"]


def test_a_tenant_at_its_limit_does_not_grow() -> None:
    problem, plan = running(
        fleet(four_gib=NO_BATCHES), line(S, "n0", 0, memory_gib=1.0), line(T, "n1", 0, memory_gib=1.0)
    )
    for gpus, rung in ((1.2, StepKind.RESIZE), (0.8, StepKind.PARTLY)):
        limited = replace(problem, limits={"shop": Limit(gpus=gpus)})
        quick = quick_step(limited, plan, [call(S, 90.0)], Silent())
        assert quick
        assert quick.rung is rung


def test_what_pinned_instances_carry_counts() -> None:
    problem, plan = running(fleet(), line(S, "n0", 0))
    quick = quick_step(problem, plan, [call(S, 120.0)], Silent(), elsewhere={S: 60.0})
    assert quick
    assert quick.rates == {S: 120.0}
    assert quick.plan.instances[0].rate_per_second == pytest.approx(60.0)


def test_a_call_of_an_unknown_service_means_no_step() -> None:
    problem, plan = running(fleet(), line(S, "n0", 0))
    assert quick_step(problem, plan, [call("shop/none", 120.0)], Inline()) is None
    assert quick_step(problem, plan, [], Inline()) is None


@pytest.mark.slow
@settings(
    max_examples=200 if SOAK else 12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(fleets(), st.sampled_from(["gpu", "share"]), st.floats(1.02, 3.0), st.integers(0, 2))
def test_every_step_is_valid_and_touches_no_other_service(
    problem: Problem, pricing: str, factor: float, who: int
) -> None:
    problem = replace(problem, policy=replace(problem.policy, pricing=pricing))  # type: ignore[arg-type]
    plan = solve(problem, SolveBudget(seconds=None, work=0))
    problem = replace(problem, state=RunningState(running=plan.instances))
    name = sorted(problem.services)[who % len(problem.services)]
    rate = problem.services[name].rate_per_second * factor
    quick = quick_step(problem, plan, [call(name, rate)], Inline())
    if quick is None:
        return
    verdict = judge(problem.change_rates(quick.rates), quick.plan, simulate=False, keeps=keep)
    assert verdict.is_right, verdict.violations
    before = {instance.id: instance for instance in plan.instances}
    for instance in quick.plan.instances:
        old = before.get(instance.id)
        if instance.service != name and old:
            shape = (old.place, old.variant, old.batch, old.sm_percent, old.memory_gib, old.rate_per_second)
            assert (
                instance.place,
                instance.variant,
                instance.batch,
                instance.sm_percent,
                instance.memory_gib,
                instance.rate_per_second,
            ) == shape
    if quick.rung in (StepKind.RETUNE, StepKind.RESIZE):
        assert [instance.id for instance in quick.plan.instances] == [instance.id for instance in plan.instances]
    if quick.rung is StepKind.RETUNE:
        shapes = [(instance.sm_percent, instance.memory_gib) for instance in quick.plan.instances]
        assert shapes == [(instance.sm_percent, instance.memory_gib) for instance in plan.instances]
