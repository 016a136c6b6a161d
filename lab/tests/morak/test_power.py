"""Watts: the proved answer is the best there is, and what is left out can be helped as it says."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.morak import (
    PoweredGpu,
    PoweredSetting,
    PowerPlan,
    PowerProblem,
    Starved,
    WrongPowerProblem,
    cap,
    exact,
    greedy,
    judge,
)
from lab.morak.classes import alike
from lab.morak.problem import PoweredModel
from lab.tests.morak.made import brute_force, every_setting, problems
from solvers.morak.power.problem import PoweredResident
from solvers.planning.problem import Demand, GpuType, Profile
from tests.solvers.known import known
from tests.support.soak import scaled

MANY = settings(max_examples=scaled(600, 60), deadline=None)
NEAR = 1e-9


def close(left: float, right: float) -> bool:
    return abs(left - right) <= NEAR * max(1.0, abs(left), abs(right))


@pytest.mark.slow
@MANY
@given(problems())
def test_exact_is_brute_force(problem: PowerProblem) -> None:
    answer = cap(problem)
    assert judge.violations(problem, answer.settings) == []
    assert close(answer.proof.value, brute_force(problem))
    assert known(answer.proof.gap) <= 1e-9


@pytest.mark.slow
@MANY
@given(problems(most_gpus=5))
def test_greedy_is_valid_and_never_better(problem: PowerProblem) -> None:
    fast = greedy.solve(problem, alike(problem))
    assert judge.violations(problem, fast) == []
    assert judge.worth_per_second(problem, fast) <= cap(problem).proof.value * (1 + NEAR)


@pytest.mark.slow
@MANY
@given(problems(), st.integers(0, 60))
def test_the_bound_holds_however_little_work_is_allowed(problem: PowerProblem, work: int) -> None:
    hurried = cap(problem, work)
    assert judge.violations(problem, hurried.settings) == []
    assert known(hurried.proof.bound) >= cap(problem).proof.value * (1 - NEAR)
    assert hurried.proof.value <= known(hurried.proof.bound)


@pytest.mark.slow
@MANY
@given(problems(), st.floats(1, 3))
def test_more_watts_never_yield_less(problem: PowerProblem, factor: float) -> None:
    if problem.budget_w is not None:
        more = cap(replace(problem, budget_w=problem.budget_w * factor))
        assert more.proof.value >= cap(problem).proof.value * (1 - NEAR)


@pytest.mark.slow
@MANY
@given(problems(), st.floats(0.2, 1))
def test_a_tighter_limit_never_yields_more(problem: PowerProblem, factor: float) -> None:
    tight = replace(problem, models=tuple(replace(m, limit_ms=m.limit_ms * factor) for m in problem.models))
    assert cap(tight).proof.value <= cap(problem).proof.value * (1 + NEAR)


@pytest.mark.slow
@MANY
@given(problems(), st.randoms(use_true_random=False))
def test_order_changes_nothing(problem: PowerProblem, random: st.DataObject) -> None:
    gpus, models = list(problem.gpus), list(problem.models)
    random.shuffle(gpus)  # type: ignore[attr-defined]
    random.shuffle(models)  # type: ignore[attr-defined]
    assert cap(replace(problem, gpus=tuple(gpus), models=tuple(models))) == cap(problem)


@pytest.mark.slow
@MANY
@given(problems())
def test_each_relaxation_helps_while_all_else_stays(problem: PowerProblem) -> None:
    answer = cap(problem)
    for starved in answer.starved:
        helped = relaxed(problem, starved)
        if helped is None or "more memory" in starved.relaxation:  # without an amount it cannot be applied
            assert "profile" in starved.relaxation or "memory" in starved.relaxation
            continue
        busy = {setting.gpu for setting in answer.settings}
        is_model = starved.kind == "model"
        free = [gpu for gpu in helped.gpus if (gpu.name not in busy and is_model) or gpu.name == starved.name]
        assert any(
            (starved.kind == "gpu" or setting.residents[0].model == starved.name)
            and judge.violations(helped, (*answer.settings, setting)) == []
            for gpu in free
            for setting in every_setting(helped, gpu)
        ), starved


def relaxed(problem: PowerProblem, starved: Starved) -> PowerProblem | None:
    """Returns the problem with the relaxation applied."""
    text = starved.relaxation
    added: tuple[PoweredGpu, ...] = ()
    if found := re.search(r"one more GPU of (\w)", text):
        added = (PoweredGpu("new", found[1]),)
    if found := re.search(r"a cap of ([\d.]+) W(?: on (\w+))?", text):
        name = found[2] or starved.name
        gpus = tuple(replace(g, cap_w=float(found[1])) if g.name == name else g for g in problem.gpus)
        types = {n: replace(t, max_w=max(t.max_w, float(found[1]))) for n, t in problem.gpu_types.items()}
        gpus = tuple(replace(g, cap_w=problem.cap_w(old) if g.cap_w is None else g.cap_w)
                     for g, old in zip(gpus, problem.gpus, strict=True))  # fmt: skip
        problem = replace(problem, gpus=gpus, gpu_types=types, budget_w=None)
    elif found := re.search(r"a limit of ([\d.]+) ms for (\w+)", text):
        limit = float(found[1])
        problem = replace(
            problem, models=tuple(replace(m, limit_ms=limit) if m.name == found[2] else m for m in problem.models),
            gpu_types={n: replace(t, max_w=1e6) for n, t in problem.gpu_types.items()}, budget_w=None,
            gpus=tuple(replace(gpu, cap_w=None) for gpu in problem.gpus),
        )  # fmt: skip
    elif "a budget of" not in text and not added:
        return None
    problem = replace(problem, gpus=(*problem.gpus, *added))
    if found := re.search(r"a budget of ([\d.]+) W", text):
        problem = replace(problem, budget_w=float(found[1]))
    return problem


# A case to read: GoogLeNet of Morak's Figure 4 in spirit, one type, one model


def profile(**demand: object) -> Profile:
    curves = {1: ((10, 20.0), (30, 8.0), (100, 8.0)), 8: ((10, 90.0), (30, 36.0), (100, 36.0))}
    given_demand = Demand(power_w=((10, 20.0), (100, 110.0)), power_exponent=2.0, **demand)  # type: ignore[arg-type]
    return Profile("net", "only", "t", curves, {1: 1.0, 8: 2.0}, given_demand)


def fleet(budget_w: float | None = None, gpus: int = 1, cap_w: float | None = None, limit_ms: float = 100.0,
          sensitivity: float = 0.0) -> PowerProblem:  # fmt: skip
    measured = profile(sensitivity=sensitivity, pressure=((10, 0.1), (100, 0.5)))
    model = PoweredModel("net", limit_ms, {"t": measured}, {"t": tuple(range(10, 101, 10))})
    gpu_type = GpuType("t", 11.0, 15.0, 250.0, (750.0, 1500.0))
    named = tuple(PoweredGpu(f"g{place}", "t", cap_w) for place in range(gpus))
    return PowerProblem({"t": gpu_type}, named, (model,), budget_w, residents_per_gpu=3)


def take_only(answer: PowerPlan) -> PoweredSetting:
    (setting,) = answer.settings
    return setting


def test_a_gpu_is_split_into_parts_at_the_knee_when_watts_do_not_bind() -> None:
    assert take_only(cap(fleet())) == PoweredSetting("g0", 1500.0, (PoweredResident("net", 30, 8),) * 3)


def test_a_tight_limit_leaves_fewer_neighbours_or_smaller_batches() -> None:
    crowded, tight = cap(fleet(sensitivity=0.5)), cap(fleet(sensitivity=0.5, limit_ms=36.5))
    assert len(take_only(crowded).residents) == 3
    assert all(resident.batch == 1 or resident.sm_percent > 30 for resident in take_only(tight).residents)


def test_a_cap_lowers_the_clock_before_it_empties_the_gpu() -> None:
    # Three parts at half the clock draw a quarter of the watts and yield half: 15 + 3 x 40 / 4 = 45 W.
    assert take_only(cap(fleet(cap_w=45.0))).clock_mhz == 750.0


def test_a_limit_a_cap_and_a_budget_may_be_met_exactly() -> None:
    whole = cap(fleet()).proof.value
    assert cap(fleet(limit_ms=36.0)).proof.value == whole
    assert cap(fleet(cap_w=15.0 + 3 * 40.0)).proof.value == whole
    assert cap(fleet(budget_w=15.0 + 3 * 40.0)).proof.value == whole
    full = replace(fleet(), gpu_types={"t": replace(fleet().gpu_types["t"], memory_gib=6.0)})
    assert cap(full).proof.value == whole


def test_idle_watts_count_against_the_budget() -> None:
    answer = cap(fleet(budget_w=59.0, gpus=4))
    assert answer.settings == () and answer.proof.bound == 0
    assert all("a budget of" in starved.relaxation for starved in answer.starved)


def test_a_starved_gpu_is_named_with_its_limit_and_the_least_change() -> None:
    slow, capped = cap(fleet(limit_ms=5.0)), cap(fleet(cap_w=16.0))
    assert slow.starved[0].reason.startswith("net takes 8 ms at its fastest (batch 1, 1500 MHz)")
    assert "a limit of 8.000001 ms for net" in slow.starved[0].relaxation
    assert slow.starved[1].kind == "model"
    assert capped.starved[0].relaxation.startswith("a cap of 20.0000")


def test_a_model_over_the_cap_of_a_busy_gpu_needs_one_more_gpu() -> None:
    hungry = replace(profile(), demand=Demand(power_w=((10, 700.0), (100, 700.0))))
    second = PoweredModel("hungry", 100.0, {"t": hungry}, {"t": (100,)})
    answer = cap(replace(fleet(), models=(*fleet().models, second)))
    (starved,) = answer.starved
    assert starved.reason.startswith("every GPU's cap is below its power draw: g0 is capped at 250 W")
    assert starved.relaxation == "one more GPU of t and a cap of 365.000001 W on it"


def test_a_large_fleet_is_answered_within_its_bound() -> None:
    answer = cap(fleet(budget_w=400 * 70.0, gpus=400, sensitivity=0.4))
    assert judge.violations(fleet(budget_w=400 * 70.0, gpus=400, sensitivity=0.4), answer.settings) == []
    assert known(answer.proof.gap) < 0.001


def test_too_many_splits_to_enumerate_still_have_a_bound_and_name_their_method() -> None:
    problem = fleet(budget_w=200.0, gpus=3, sensitivity=0.4)
    claim = exact.solve(problem, alike(problem), work=20)
    assert "bound without interference" in claim.method
    assert claim.bound >= cap(problem).proof.value


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpus": (PoweredGpu("g", "none"),)}, "GPU g is of the unknown type none"),
        ({"gpus": (PoweredGpu("g", "t", None, ("x",)),)}, "GPU g admits the unknown model x"),
        ({"gpus": (PoweredGpu("g", "t"), PoweredGpu("g", "t"))}, "share a name"),
        ({"residents_per_gpu": 0}, "residentsPerGpu 0"),
        ({"models": (PoweredModel("net", 0.0, {}, {}),)}, "limit 0 ms"),
        ({"models": (PoweredModel("net", 9.0, {"t": profile()}, {"t": (5,)}),)}, "outside the measured 10..100"),
    ],
)
def test_an_invalid_problem_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(WrongPowerProblem, match=re.escape(words)):
        replace(fleet(), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (PoweredSetting("g0", 1000.0, (PoweredResident("net", 30, 8),)), "1000 MHz is not a clock of t"),
        (PoweredSetting("g0", 1500.0, ()), "0 residents; 1..3 are allowed"),
        (PoweredSetting("g0", 1500.0, (PoweredResident("net", 30, 2),)), "net at batch 2 was never measured on t"),
        (PoweredSetting("g0", 1500.0, (PoweredResident("net", 31, 8),)), "31 SM% is not one of the shares of net"),
        (
            PoweredSetting("g0", 1500.0, (PoweredResident("net", 80, 8), PoweredResident("net", 30, 8))),
            "110 SM% are assigned; a GPU has 100",
        ),
        (PoweredSetting("g0", 1500.0, (PoweredResident("net", 10, 8),)), "net takes 90 ms; 50 are allowed"),
        (PoweredSetting("g0", 1500.0, (PoweredResident("net", 100, 8),)), "draws 125 W; its cap is 120 W"),
    ],
)
def test_the_judge_names_each_broken_limit(setting: PoweredSetting, words: str) -> None:
    assert any(words in fault for fault in judge.violations(fleet(cap_w=120.0, limit_ms=50.0), (setting,)))


def test_the_judge_names_full_memory_an_exceeded_budget_and_a_gpu_set_twice() -> None:
    full = replace(fleet(), gpu_types={"t": GpuType("t", 3.0, 15.0, 250.0, (750.0, 1500.0))})
    twice = PoweredSetting("g0", 1500.0, (PoweredResident("net", 30, 8), PoweredResident("net", 30, 8)))
    assert any("4 GiB are used; the GPU has 3" in fault for fault in judge.violations(full, (twice,)))
    assert any("the fleet draws 95 W; its budget is 90 W" in f for f in judge.violations(fleet(90.0), (twice,)))
    assert any("two settings" in fault for fault in judge.violations(fleet(), (twice, twice)))
    barred = replace(fleet(), gpus=(PoweredGpu("g0", "t", None, ()),))
    assert any("net is not admitted" in fault for fault in judge.violations(barred, (twice,)))
