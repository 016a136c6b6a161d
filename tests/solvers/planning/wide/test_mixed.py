"""Plans of language models beside everything else: right by the judge, with a bound, and kept where they run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from solvers.hetsev.fleet import FleetDelta
from solvers.planners.ask import find_plan
from solvers.planners.portfolio import ask_others
from solvers.planning.beside import MODELS_HOLD_ALL
from solvers.planning.judge import judge
from solvers.planning.parts.follow import PlanFollower
from solvers.planning.plan import Plan, list_unserved
from solvers.planning.problem import Job, JobProfile, Limit, PlacedJob, Policy, Problem, RunningState
from solvers.planning.replay import replay_plan
from solvers.planning.solve import SolveBudget, find, find_bound
from solvers.planning.wire import from_json, to_json
from tests.solvers.planning.wide.wide_fleets import chat, fleet, photos, summaries, wide

pytestmark = pytest.mark.slow

BUDGET = SolveBudget(None, 6)


def planned(problem: Problem, work: int = 6) -> Plan:
    """Returns a plan that the judge finds right, simulated, with a bound that is no higher than its cost."""
    plan = find(problem, SolveBudget(None, work), alone=True).plan
    verdict = judge(problem, plan)
    assert verdict.is_right, verdict.violations
    assert not verdict.misstated, verdict.misstated
    certificate = plan.certificate
    assert certificate
    assert certificate.cost == verdict.cost
    if work:
        assert certificate.bound is not None
        assert certificate.bound <= certificate.cost.total * (1 + 1e-6)
    return plan


def test_a_language_model_takes_four_linked_gpus_and_the_bound_is_its_cost() -> None:
    plan = planned(fleet(chat(), linked=4))
    (line,) = plan.instances
    assert line.gpus in ((0, 1, 2, 3), (4, 5, 6, 7))
    assert plan.certificate
    assert plan.certificate.cost.total == 8.0
    assert plan.certificate.bound == pytest.approx(8.0, rel=1e-4)


def test_a_fleet_of_both_gets_one_plan_with_a_bound() -> None:
    problem = fleet(chat(2.0), summaries(4.0), photos())
    plan = planned(problem)
    assert not plan.unserved
    assert {line.service for line in plan.instances} == set(problem.services)
    held = [place for line in plan.instances for place in line.places if line.service != "shop/photos"]
    assert len(held) == len(set(held))
    assert not set(held) & {line.place for line in plan.instances if line.service == "shop/photos"}
    assert plan.certificate
    assert plan.certificate.gap is not None
    assert plan.certificate.gap < 0.35


def test_the_plan_is_found_again_by_its_seed_and_work_and_read_from_its_json() -> None:
    problem = fleet(chat(), summaries(4.0), photos())
    found = find(problem, BUDGET, alone=True)
    again = replay_plan(problem, 0, found.work, is_exact=found.is_exact)
    assert [(i.service, i.places, i.rate_per_second) for i in again.instances] == [
        (i.service, i.places, i.rate_per_second) for i in found.plan.instances
    ]
    assert from_json(to_json(found.plan, problem), problem).instances == found.plan.instances


def test_what_runs_stays_where_it_is_and_follows_its_rate() -> None:
    running = (wide(gpus=(4, 5, 6, 7), rate_per_second=0.5),)
    plan = planned(fleet(chat(0.7), photos(), running=running))
    (line,) = [line for line in plan.instances if line.service == "shop/chat"]
    assert (line.gpus, line.id) == ((4, 5, 6, 7), "shop/chat/4")
    assert (plan.changes.retune, plan.changes.stop, plan.changes.move) == (1, 0, 0)


def test_another_number_of_requests_at_once_is_kept_where_it_carries_nearly_as_much() -> None:
    running = (wide(gpus=(4, 5, 6, 7), batch=200, rate_per_second=0.7),)
    (line,) = planned(fleet(chat(0.7), running=running)).instances
    assert (line.gpus, line.batch) == ((4, 5, 6, 7), 200)
    (few,) = planned(fleet(chat(2.5), running=(wide(gpus=(4, 5, 6, 7), batch=1, rate_per_second=0.1),))).instances
    assert few.batch > 8


def test_a_job_runs_beside_it_and_never_on_its_gpus() -> None:
    job = Job("lab/train", "lab", "training", 100.0, {"a100": JobProfile(((10, 1.0), (100, 2.0)), 4.0)}, None, 5.0)
    plan = planned(fleet(chat(), photos(), jobs={"lab/train": job}))
    (placed,) = plan.jobs
    held = {place for line in plan.instances if line.service == "shop/chat" for place in line.places}
    assert placed.place not in held


def test_a_job_that_must_stay_keeps_its_gpu() -> None:
    job = Job("lab/train", "lab", "training", 100.0, {"a100": JobProfile(((10, 1.0), (100, 2.0)), 4.0)}, None, 5.0)
    job = replace(job, is_preemptible=False)
    state = RunningState(datetime(2026, 1, 1, tzinfo=UTC), (), (PlacedJob("lab/train", "n1", 1, 10, 4.0),))
    problem = replace(fleet(chat(), linked=4, jobs={"lab/train": job}), state=state)
    plan = planned(problem)
    assert plan.instances[0].gpus == (4, 5, 6, 7)
    assert plan.jobs[0].place == ("n1", 1)


def test_a_node_that_is_billed_whole_is_shared_by_both() -> None:
    problem = fleet(chat(), photos(), nodes={"n1": 8, "n2": 8})
    nodes = {name: replace(node, pricing="node") for name, node in problem.nodes.items()}
    plan = planned(replace(problem, nodes=nodes))
    assert {line.node for line in plan.instances} in ({"n1"}, {"n2"})
    assert plan.certificate
    assert plan.certificate.cost.total == 16.0
    assert plan.certificate.bound == pytest.approx(16.0, rel=1e-4)


def test_what_does_not_fit_is_unserved_with_its_reason() -> None:
    plan = planned(fleet(chat(50.0), nodes={"n1": 4}))
    (entry,) = plan.unserved
    assert entry.service == "shop/chat"
    assert "do not carry all language models" in entry.reason
    assert "more GPUs of type a100, 4 linked" in entry.relaxation
    (none,) = planned(fleet(chat(), nodes={"n1": 8}, linked=2)).unserved
    assert none.reason == "no node of the fleet has 4 linked GPUs of type a100 that may run it"
    (limited,) = planned(fleet(chat(), limits={"shop": Limit(gpus=3.0)})).unserved
    assert limited.reason == "the limit of tenant shop leaves no room for it"
    hurried = replace(chat(), tokens=replace(chat().tokens, promise=replace(chat().tokens.promise, tpot_ms=10.0)))  # type: ignore[type-var, union-attr]
    (impossible,) = planned(fleet(hurried)).unserved
    assert impossible.reason == "no profiled shape keeps ttftMs 2000 and tpotMs 10 at any rate"


@pytest.mark.parametrize(
    ("weights_gib", "wanted"),
    [(400.0, "a profile on more GPUs"), (1e4, "a GPU type with more memory, or a variant with smaller weightsGib")],
)
def test_more_gpus_are_advised_only_where_eight_would_hold_the_model(weights_gib: float, wanted: str) -> None:
    problem = fleet(chat())
    (variant,) = problem.models["chat"]
    assert variant.llm
    larger = replace(variant, llm=replace(variant.llm, weights_gib=weights_gib))
    profiles = {
        key: replace(profile, iteration={4: profile.iteration[4]}) if profile.model == "chat" else profile
        for key, profile in problem.profiles.items()
    }
    (entry,) = planned(replace(problem, models={**problem.models, "chat": (larger,)}, profiles=profiles)).unserved
    assert entry.reason == "its weights and one context fit into no profiled number of GPUs"
    assert entry.relaxation == wanted


def test_a_service_without_a_free_gpu_outbids_a_language_model_of_low_priority() -> None:
    problem = fleet(chat(0.5, priority=1), photos(900.0, priority=1000), nodes={"n1": 4})
    plan = planned(problem)
    assert [entry.service for entry in plan.unserved] == ["shop/chat"]


def test_at_least_so_many_instances_run_each_on_gpus_of_its_own() -> None:
    plan = planned(fleet(summaries(2.0, min_instances=3)))
    assert len(plan.instances) == 3
    assert len({line.place for line in plan.instances}) == 3


def test_a_budget_of_watts_and_the_price_of_energy_count_for_language_models() -> None:
    policy = Policy(power_budget_w=8 * 60.0 + 4 * 300.0 + 200.0, energy_price_per_kwh=0.2)
    plan = planned(fleet(chat(), policy=policy))
    assert not plan.unserved
    small = Policy(power_budget_w=8 * 60.0 + 600.0)
    (entry,) = planned(fleet(chat(), policy=small)).unserved
    assert entry.reason == "powerBudgetW leaves no room for it"


def test_rates_are_followed_where_language_models_hold_every_gpu() -> None:
    problem = fleet(chat(), photos(500.0), nodes={"n1": 4}, running=(wide(),))
    replanner = PlanFollower.of(problem, Plan((wide(),), unserved=list_unserved(problem, (wide(),))))
    replanner.change({"shop/photos": 700.0})
    assert judge(problem.change_rates({"shop/photos": 700.0}), replanner.plan).is_right
    assert [(entry.service, entry.rate_per_second) for entry in replanner.plan.unserved] == [("shop/photos", 700.0)]


def test_a_language_model_whose_rate_stays_is_not_touched_by_rounding() -> None:
    problem = fleet(chat(1.3), summaries(5.1), photos())
    replanner = PlanFollower.of(problem, planned(problem, work=2))
    before = replanner.plan
    replanner.change({"shop/photos": 600.0})
    assert {line.service for line in {*before.instances} ^ {*replanner.plan.instances}} == {"shop/photos"}


def test_another_planner_plans_the_rest() -> None:
    problem = fleet(chat(), photos(), policy=Policy(planner="hetsev"))
    found = find_plan(problem, "hetsev", BUDGET, alone=True).plan
    assert judge(problem, found).is_right
    assert {line.service for line in found.instances} == {"shop/chat", "shop/photos"}


def test_a_bound_by_itself_is_that_of_both_parts() -> None:
    problem = fleet(chat(), photos())
    bound = find_bound(problem, BUDGET, alone=True).bound
    assert bound is not None
    assert 8.0 < bound <= 10.0 + 1e-6


def test_another_planner_gives_jobs_the_gpus_that_language_models_leave() -> None:
    job = Job("lab/train", "lab", "training", 100.0, {"a100": JobProfile(((10, 1.0), (100, 2.0)), 4.0)}, None, 5.0)
    problem = fleet(chat(), jobs={"lab/train": job})
    found = find_plan(problem, "hetsev", BUDGET, alone=True).plan
    assert judge(problem, found).is_right
    assert [placed.job for placed in found.jobs] == ["lab/train"]


@pytest.mark.parametrize("planner", ["hetsev", "mudi", "inss", "morak", "oltunes"])
def test_where_language_models_hold_every_gpu_all_else_says_so(planner: str) -> None:
    problem = fleet(chat(priority=1000), photos(priority=1), nodes={"n1": 4})
    for found in (planned(problem), find_plan(problem, planner, BUDGET, alone=True).plan):
        assert judge(problem, found).is_right
        assert [(entry.service, entry.reason) for entry in found.unserved] == [("shop/photos", MODELS_HOLD_ALL)]


def test_what_is_added_beside_language_models_leaves_them_their_gpus() -> None:
    running = (wide(rate_per_second=0.5), wide("shop/summaries", gpus=(4,), rate_per_second=3.0))
    problem = fleet(chat(0.6), summaries(900.0), photos(700.0), running=running)
    delta = FleetDelta.of(problem)
    for rates in ({}, {"shop/photos": 300.0}, {}):
        plan, verdict = delta.add(rates)
        assert verdict.is_right, verdict.violations
        lines = {line.service: line for line in plan.instances}
        assert (lines["shop/chat"].places, lines["shop/chat"].rate_per_second) == (running[0].places, 0.6)
        assert lines["shop/photos"].gpu not in (0, 1, 2, 3, 4)
        assert [entry.service for entry in plan.unserved] == ["shop/summaries"]


def test_a_language_model_takes_each_of_its_gpus_of_a_limit() -> None:
    problem = fleet(chat(), photos(700.0), running=(wide(),), limits={"shop": Limit(gpus=4.0)})
    plan, verdict = FleetDelta.of(problem).add()
    assert verdict.is_right, verdict.violations
    assert [entry.service for entry in plan.unserved] == ["shop/photos"]
    more = replace(problem, limits={"shop": Limit(gpus=5.0)})
    assert not FleetDelta.of(more).add()[0].unserved


def test_a_choice_beside_what_others_plan_is_found_again() -> None:
    problem = fleet(chat(), summaries(4.0), photos())
    found = find(problem, BUDGET, alone=True, others=ask_others)
    again = replay_plan(problem, 0, found.work, is_exact=found.is_exact, others=ask_others)
    assert again.instances == found.plan.instances
