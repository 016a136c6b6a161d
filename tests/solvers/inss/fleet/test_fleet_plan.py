"""InSS plans a fleet: other batches as long as they are enough, else placement and SM% for the most throughput."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from solvers.inss.fleet import plan
from solvers.inss.fleet.promises import most_exec_ms, slowest_ms, usable
from solvers.planning.fleet.grids import accepted_rate
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Policy, Problem, RunningState
from solvers.planning.search.promise import keep
from tests.solvers.hetsev.fleet.fleets import fleet

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
SEVERAL = {batch: tuple((sm, ms * (0.25 + 0.75 * batch / 8)) for sm, ms in ((20, 40.0), (40, 20.0), (100, 10.0)))
           for batch in (1, 2, 4, 8)}  # fmt: skip


def batched(rate: float, **fields: Any) -> Problem:
    """Returns the fleet with four batches to choose from, on its fast GPUs alone."""
    problem = fleet(rate, **fields)
    profiles = {
        key: replace(profile, latency_ms=SEVERAL, memory_gib={batch: 1.0 + batch / 4 for batch in SEVERAL})
        for key, profile in problem.profiles.items()
        if key[2] == "fast"
    }
    return replace(problem, profiles=profiles)


def planned(problem: Problem, before: PlannerDraft | None = None) -> PlannerDraft:
    """Returns the plan with what an earlier one made running, once the judge has accepted it."""
    problem = replace(problem, state=RunningState(NOON, before.instances if before else ()))
    draft = plan(problem, {}, PlannerBudget())
    verdict = judge(problem, Plan(draft.instances, (), draft.unserved), simulate=False, keeps=keep)
    assert verdict.is_right, verdict.violations
    return draft


def shapes(draft: PlannerDraft) -> dict[str, tuple[str, int, int]]:
    return {line.id: (line.node, line.gpu, line.sm_percent) for line in draft.instances}


def test_each_service_gets_the_gpu_and_sms_of_most_throughput() -> None:
    draft = planned(batched(300.0))
    assert not draft.unserved
    assert {line.service for line in draft.instances} == {"shop/a", "shop/b"}
    assert all(line.sm_percent == 100 for line in draft.instances)  # GPUs are free: a whole one each
    assert "reward" in draft.method


def test_a_risen_load_changes_batches_and_nothing_else() -> None:
    first = planned(batched(300.0))
    risen = planned(batched(330.0), first)
    assert shapes(risen) == shapes(first)
    assert not risen.unserved
    assert risen.method.startswith("batches by BDA")


def test_a_load_for_which_no_batch_is_enough_changes_the_placement_and_keeps_what_it_can() -> None:
    first = planned(batched(300.0))
    risen = planned(batched(1100.0), first)
    assert len(risen.instances) > len(first.instances)
    assert not risen.unserved
    assert set(shapes(first)) <= set(shapes(risen))
    assert risen.method.startswith("placement and SM%")


def test_batches_follow_the_load_on_one_shared_gpu() -> None:
    problem = batched(60.0)
    node = next(iter(problem.nodes.values()))
    alone = replace(problem, nodes={node.name: replace(node, gpus=(0,))})
    calm = planned(alone)
    assert len({line.place for line in calm.instances}) == 1
    assert sum(line.sm_percent for line in calm.instances) <= 100
    assert not calm.unserved


def test_more_than_the_fleet_carries_is_left_out_with_the_reason() -> None:
    draft = planned(batched(1e5))
    assert {entry.service for entry in draft.unserved} == {"shop/a", "shop/b"}
    assert all(entry.reason for entry in draft.unserved)
    again = planned(batched(1.001e5), draft)
    assert shapes(again) == shapes(draft)  # nothing moves where nothing is gained


def test_rules_that_inss_does_not_know_hold() -> None:
    draft = planned(batched(300.0, is_dedicated=True, min_instances=2))
    places = [line.place for line in draft.instances]
    assert len(set(places)) == len(places) == 4
    narrow = batched(300.0)
    hot = {name: replace(kind, max_w=kind.idle_w + 1) for name, kind in narrow.gpu_types.items()}
    profiles = {
        key: replace(profile, demand=replace(profile.demand, power_w=((20, 0.4), (100, 2.0))))
        for key, profile in narrow.profiles.items()
    }
    limited = planned(replace(narrow, gpu_types=hot, profiles=profiles))
    assert limited.instances
    assert all(line.sm_percent < 100 for line in limited.instances)


@pytest.mark.parametrize("rate", [100.0, 1500.0])
def test_the_same_question_has_the_same_plan(rate: float) -> None:
    assert planned(batched(rate)) == planned(batched(rate))


def test_the_slowest_task_waits_for_a_batch_or_behind_a_queue_of_poissons_percentile() -> None:
    service, policy = fleet(100.0).services["shop/a"], Policy(utilization=1.0)
    assert slowest_ms(service, 4, 10.0, 1, policy) == pytest.approx(30 + 10)  # three more come in 30 ms
    assert slowest_ms(service, 4, 10.0, 4, policy) == pytest.approx(20)  # the smallest batch goes as it is
    busy = replace(service, rate_per_second=1000.0)  # 10 come in 10 ms, 17 at 98 %: 18 with itself are two batches
    assert slowest_ms(busy, 10, 10.0, 1, policy) == pytest.approx(20)
    assert slowest_ms(busy, 4, 10.0, 1, policy) == pytest.approx(30)  # it is sent 4 in 10 ms at most, 9 at 98 %


def test_the_longest_batch_and_the_usable_share_agree_with_their_definitions() -> None:
    problem = fleet(100.0)
    service = problem.services["shop/a"]
    longest = most_exec_ms(problem, service, 4, 1) * (1 + problem.policy.exec_margin)
    assert slowest_ms(service, 4, longest, 1, problem.policy) <= service.slo_ms
    assert slowest_ms(service, 4, longest * 1.001, 1, problem.policy) > service.slo_ms
    for exec_ms, share in usable(problem, service, 8):
        carried = accepted_rate(problem.policy, service, 8, exec_ms)
        assert share * 8 * 1000 / exec_ms == pytest.approx(carried, rel=0.003, abs=1e-9)


def test_an_instance_keeps_its_name_on_its_gpu() -> None:
    first = planned(batched(300.0))
    renamed = replace(first, instances=tuple(replace(line, id=f"i{n}") for n, line in enumerate(first.instances)))
    risen = planned(batched(1100.0), renamed)
    kept = {line.id: line for line in risen.instances if line.id in {"i0", "i1"}}
    assert {line.place for line in kept.values()} == {line.place for line in renamed.instances}
