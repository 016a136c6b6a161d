"""The judge and language models: whole GPUs that are linked, memory for tokens, and an SLO of tokens by simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from solvers.planning.judge import judge
from solvers.planning.judge.whole import iterations, kv_tokens
from solvers.planning.language import EngineForm, ServerMemory
from solvers.planning.plan import Changes, Plan
from solvers.planning.problem import Instance, Job, JobProfile, Limit, PlacedJob, Policy, Problem
from tests.solvers.planning.wide.wide_fleets import chat, fleet, photos, wide


def rules(problem: Problem, *instances: Instance, **fields: Any) -> set[str]:
    """Returns the names of the rules that a plan of these breaks."""
    verdict = judge(problem, Plan(instances, **fields), simulate=False)
    return {violation.rule for violation in verdict.violations}


def test_an_instance_on_four_gpus_is_right_and_pays_for_each_of_them() -> None:
    verdict = judge(fleet(chat()), Plan((wide(),)))
    assert verdict.is_right, verdict.violations
    assert verdict.cost.resource == 8.0
    assert verdict.attainment["shop/chat"] > 0.95


WRONG = {
    "a GPU that the node lacks": (wide(gpus=(6, 7, 8, 9)), "gpus_exist"),
    "GPUs that do not rise": (wide(gpus=(0, 1, 1, 2)), "gpus_exist"),
    "a number of GPUs that was not profiled": (wide(gpus=(0, 1)), "degree_profiled"),
    "GPUs of two groups of links": (wide(gpus=(2, 3, 4, 5)), "gpus_linked"),
    "half of each GPU": (wide(sm_percent=50), "gpus_whole"),
    "no requests at once": (wide(batch=0), "sequences_counted"),
    "too many requests at once": (wide(batch=257), "sequences_counted"),
    "a wait for a batch": (wide(batch_timeout_ms=5.0), "sequences_counted"),
    "too little memory for a context": (wide(memory_gib=36.5), "tokens_fit"),
    "more memory than a GPU has": (wide(memory_gib=81.0), "memory_fits"),
    "no rate": (wide(rate_per_second=0.0), "rate_positive"),
    "another clock": (wide(clock_mhz=1000.0), "clock_offered"),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_rule_of_whole_gpus_is_broken_by_its_name(case: str) -> None:
    instance, rule = WRONG[case]
    assert rule in rules(fleet(chat(), linked=4), instance)


def test_an_instance_holds_no_more_tokens_than_its_server_said_and_each_data_rank_has_its_own() -> None:
    problem = fleet(chat())
    key = "chat", "fp16", "a100"
    profile, size = problem.profiles[key], problem.models["chat"][0].llm
    assert size is not None
    fit = kv_tokens(profile, size, 4, 80.0)
    for cache_tokens, ranks, held in ((fit // 2, 1, fit // 2), (10 * fit, 1, fit), (10 * fit, 2, fit // 2)):
        said = replace(profile, engine={4: ServerMemory(cache_tokens, EngineForm(data_ranks=ranks))})
        _, limits = iterations(said, size, problem.gpu_types["a100"], 4, 64, 80.0, 1410.0, 0.0)
        assert (limits.kv_tokens, limits.form.data_ranks) == (held, ranks)
    short = replace(profile, engine={4: ServerMemory(size.context_tokens - 1, EngineForm())})
    assert rules(replace(problem, profiles={key: short}), wide()) == {"tokens_fit"}


def test_nothing_else_runs_on_any_of_its_gpus() -> None:
    other = Instance("p", "shop/photos", "n1", 3, "fp16", 8, 0.0, 20, 4.0, 1410.0, 100.0)
    found = rules(fleet(chat(), photos(100.0)), wide(), other)
    assert found >= {"sm_fits", "whole_alone"}
    assert not rules(fleet(chat(), photos(100.0)), wide(), replace(other, gpu=4))


def test_a_job_does_not_run_on_any_of_its_gpus() -> None:
    job = Job("lab/train", "lab", "training", 100.0, {"a100": JobProfile(((10, 1.0), (100, 2.0)), 4.0)})
    job = replace(job, max_price_per_hour=5.0)
    problem = fleet(chat(), jobs={"lab/train": job})
    assert "whole_alone" in rules(problem, wide(), jobs=(PlacedJob("lab/train", "n1", 2, 10, 4.0),))
    assert not rules(problem, wide(), jobs=(PlacedJob("lab/train", "n1", 5, 10, 4.0),))


def test_only_a_language_model_takes_several_gpus() -> None:
    several = Instance("p", "shop/photos", "n1", 0, "fp16", 8, 0.0, 20, 4.0, 1410.0, 500.0, gpus=(0, 1))
    assert "one_gpu" in rules(fleet(photos()), several)


def test_cores_and_memory_of_the_node_count_once_and_shares_of_a_tenant_by_gpu() -> None:
    problem = fleet(chat(), limits={"shop": Limit(gpus=3.0)})
    assert rules(problem, wide()) == {"gpus_within_limit"}
    assert not rules(replace(problem, limits={"shop": Limit(gpus=4.0, price_per_hour=8.0)}), wide())
    node = replace(problem.nodes["n1"], cpu_cores=4.0, host_memory_gib=32.0)
    assert not rules(replace(problem, limits={}, nodes={"n1": node}), wide())
    assert rules(replace(problem, limits={}, nodes={"n1": replace(node, cpu_cores=3.0)}), wide()) == {"cpu_fits"}


def test_each_gpu_draws_its_watts_all_of_the_time() -> None:
    problem = fleet(chat(), policy=Policy(power_budget_w=8 * 60.0 + 4 * 300.0))
    assert not rules(problem, wide())
    assert rules(fleet(chat(), policy=Policy(power_budget_w=8 * 60.0 + 4 * 300.0 - 100.0)), wide()) == {
        "power_budget_holds"
    }
    assert judge(
        fleet(chat(), policy=Policy(energy_price_per_kwh=1.0)), Plan((wide(),)), simulate=False
    ).cost.resource == (pytest.approx(8.0 + 4 * 0.36))


@pytest.mark.slow
def test_too_high_a_rate_breaks_the_promise_of_tokens_and_the_sentence_has_both_shares() -> None:
    verdict = judge(fleet(chat(30.0)), Plan((wide(rate_per_second=30.0),)))
    (violation,) = verdict.violations
    assert (violation.where, violation.rule) == ("shop/chat on n1/0,1,2,3", "slo_holds")
    assert "first tokens" in violation.sentence or "give up their memory" in violation.sentence


@pytest.mark.slow
def test_memory_that_requests_would_have_to_give_up_is_refused() -> None:
    verdict = judge(fleet(chat(3.0)), Plan((wide(rate_per_second=3.0, memory_gib=37.2, batch=256),)))
    assert "give up their memory" in verdict.violations[0].sentence


def test_an_instance_that_stays_is_kept_and_one_that_moves_pays_for_all_its_gpus() -> None:
    problem = fleet(chat(), running=(wide(),))
    kept = judge(problem, Plan((wide(),)), simulate=False)
    assert kept.changes == Changes(keep=1)
    assert kept.cost.churn == 0.0
    moved = judge(problem, Plan((wide(gpus=(4, 5, 6, 7)),)), simulate=False)
    assert moved.changes == Changes(move=1)
    assert moved.cost.churn == pytest.approx(0.05 * 4 * 2.0)
    assert judge(problem, Plan((wide(batch=64),)), simulate=False).changes == Changes(retune=1)
    wider = judge(problem, Plan((wide(gpus=tuple(range(8))),)), simulate=False)
    assert wider.changes == Changes(resize=1)
    assert wider.cost.churn == pytest.approx(0.05 * 8 * 2.0)
