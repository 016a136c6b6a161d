"""InSS's problem against brute force; each constraint judged by itself."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.inss.throughput import (
    ServedModel,
    Speed,
    ThroughputGpuType,
    ThroughputModel,
    ThroughputProblem,
    ThroughputShape,
    WrongThroughput,
    bound,
    greedy,
    judge,
    serve,
    subsets,
)
from solvers.inss.throughput.kernels import fill
from tests.solvers.known import known

FEW = 200 if os.environ.get("GPUWRIGHT_SOAK") else 15
STEPS = (20, 40, 60, 100)
BATCHES = (1, 4)


def speed(scale: float, sensitivity: float = 0.2) -> Speed:
    return Speed(
        run_ms={(b, s): scale * (1 + b / 2) * (0.3 + 100 / s) for b in BATCHES for s in STEPS},
        cache_slope=0.5,
        cache_base=0.1,
        cache_sensitivity=sensitivity,
    )


def model(
    name: str, scale: float, rate: float, most_ms: float = 50.0, memory_gib: float = 2.0, family: str = "",
    is_dedicated: bool = False,
) -> ThroughputModel:  # fmt: skip
    usable = ((most_ms / 4, 0.9), (most_ms / 2, 0.8), (most_ms, 0.2)) if is_dedicated else ((most_ms, 1.0),)
    shapes = {b: ThroughputShape(memory_gib + 0.5 * b, most_ms, usable) for b in BATCHES}
    return ThroughputModel(
        name, rate, shapes, {"big": speed(scale), "small": speed(2 * scale)}, 500 / scale, family, is_dedicated
    )


TYPES = (ThroughputGpuType("big", 8.0), ThroughputGpuType("small", 6.0))
PENALTY = 100.0


@st.composite
def problems(draw: st.DrawFn, most: int = 3) -> ThroughputProblem:
    models = tuple(
        model(
            f"m{i}", draw(st.sampled_from([0.5, 1.0, 2.0])), float(draw(st.integers(1, 300))),
            draw(st.sampled_from([5.0, 12.0, 40.0])), draw(st.sampled_from([1.0, 2.5, 4.0])),
            draw(st.sampled_from(["", "", "x"])), draw(st.integers(0, 3)) == 0,
        )
        for i in range(draw(st.integers(1, most)))
    )  # fmt: skip
    gpus = {"big": draw(st.integers(0, 1)), "small": draw(st.integers(0, 1))}
    return ThroughputProblem(models, TYPES, gpus, STEPS, draw(st.sampled_from([0.5, PENALTY])))


def best(problem: ThroughputProblem) -> float:
    """The objective by trying every choice of every model."""
    choices = [
        None,
        *(ServedModel(kind, gpu, s, b) for (kind, gpu) in problem.places for s in problem.sm_steps for b in BATCHES),
    ]
    found = -inf
    for picks in product(choices, repeat=len(problem.models)):
        pairs = zip(problem.models, picks, strict=True)
        answer = {model.name: pick for model, pick in pairs if pick is not None}
        value = judge.objective(problem, answer)
        if value > found and not judge.violations(problem, answer):
            found = value
    return found


@pytest.mark.slow
@settings(max_examples=FEW, deadline=None)
@given(problem=problems())
def test_the_exact_answer_equals_brute_force(problem: ThroughputProblem) -> None:
    outcome = serve(problem)
    assert judge.violations(problem, outcome.answer) == []
    assert outcome.proof.value == pytest.approx(best(problem))
    assert outcome.proof.value == pytest.approx(judge.objective(problem, outcome.answer))
    assert serve(problem) == outcome


@pytest.mark.slow
@settings(max_examples=2 * FEW, deadline=None)
@given(problem=problems(most=5))
def test_the_heuristic_is_valid_and_its_bound_is_above_the_best(problem: ThroughputProblem) -> None:
    exact, greedy = serve(problem), serve(problem, most_models=0)
    assert judge.violations(problem, greedy.answer) == []
    assert greedy.proof.method == "greedy, moves"
    here, there = exact.proof, greedy.proof
    assert there.value <= here.value + 1e-9
    assert known(there.bound) >= here.value - 1e-9


@pytest.mark.slow
def test_eight_models_on_four_gpus_are_solved_exactly() -> None:
    models = tuple(model(f"m{i}", 0.3 + 0.2 * i, 20.0 + 5 * i, 60.0, 1.0) for i in range(8))
    outcome = serve(ThroughputProblem(models, TYPES, {"big": 2, "small": 2}, STEPS, PENALTY))
    assert outcome.proof.method == "every subset, set partition"
    assert len(outcome.answer) == 8


def test_the_objective_weighs_each_model_by_its_own_best() -> None:
    problem = ThroughputProblem((model("a", 1.0, 1.0),), TYPES, {"big": 1}, STEPS, PENALTY)
    outcome = serve(problem)
    h = judge.throughput(outcome.answer["a"], judge.exec_ms(problem, outcome.answer, "a", ["a"]))
    assert outcome.proof.value == pytest.approx(h / 500.0)


def test_every_constraint_is_judged_on_its_own() -> None:
    problem = ThroughputProblem((model("a", 1.0, 10.0), model("b", 1.0, 10.0)), TYPES, {"big": 1}, STEPS, PENALTY)
    fine = {"a": ServedModel("big", 0, 40, 1), "b": ServedModel("big", 0, 60, 1)}
    assert judge.violations(problem, fine) == []
    assert judge.violations(problem, {**fine, "a": ServedModel("big", 0, 60, 1)}) == [
        "big 0: 120 % of the SMs are assigned"
    ]
    fat = replace(problem, gpu_types=(ThroughputGpuType("big", 4.9), TYPES[1]))
    assert judge.violations(fat, fine) == ["big 0: 5 GiB are used of 4.9"]
    strict = replace(problem, models=(model("a", 1.0, 10.0, 4.0), problem.models[1]))
    assert "a: a batch takes" in judge.violations(strict, fine)[0]
    related = replace(problem, models=tuple(replace(model, family="x") for model in problem.models))
    assert judge.violations(related, fine) == ["big 0: two models of one family share it"]
    closed = replace(problem, models=(replace(problem.models[0], is_dedicated=True), problem.models[1]))
    assert judge.violations(closed, fine) == ["big 0: a model that needs the GPU alone shares it"]
    assert judge.violations(problem, {"a": ServedModel("big", 1, 40, 1)}) == ["a: there is no GPU 1 of type big"]
    assert judge.violations(problem, {"a": ServedModel("big", 0, 41, 1)}) == ["a: batch 1 at 41 % is not an option"]
    assert judge.violations(problem, {"c": ServedModel("big", 0, 40, 1)}) == ["c on big was never measured"]


def test_reward_punishes_the_share_of_a_rate_that_is_not_served() -> None:
    usable = ((1.0, 1.0), (100.0, 0.5))
    slow = replace(model("a", 1.0, 200.0), shapes={1: ThroughputShape(1.0, 50.0, usable)})
    problem = ThroughputProblem((slow, model("b", 1.0, 1.0, 0.1)), TYPES, {"big": 1}, STEPS, PENALTY)
    answer = {"a": ServedModel("big", 0, 100, 1)}
    at_ms = judge.exec_ms(problem, answer, "a", ["a"])
    h, served = judge.throughput(answer["a"], at_ms), judge.count_served(problem, answer, "a", at_ms)
    assert served == pytest.approx(h * (1 - 0.5 * (1000 / h - 1) / 99))
    assert judge.violations(problem, answer) == []
    missed = max(0.0, 1 - served / 200)
    assert judge.objective(problem, answer) == pytest.approx(h / 500 - 100 * missed - 100)  # b cannot keep its SLO


def test_neighbours_slow_a_model_by_their_cache_use() -> None:
    problem = ThroughputProblem((model("a", 1.0, 1.0), model("b", 1.0, 1.0)), TYPES, {"big": 2}, STEPS, PENALTY)
    answer = {"a": ServedModel("big", 0, 40, 1), "b": ServedModel("big", 1, 60, 1)}
    assert judge.list_together(answer) == {("big", 0): ["a"], ("big", 1): ["b"]}
    alone, together = (judge.exec_ms(problem, answer, "a", there) for there in (["a"], ["a", "b"]))
    run = 1.5 * (0.3 + 2.5)
    assert alone == pytest.approx(run)
    assert together == pytest.approx(alone + run * 0.2 * (0.5 * 0.6 + 0.1))


def test_a_problem_with_helpful_neighbours_or_unknown_names_is_refused() -> None:
    with pytest.raises(WrongThroughput, match="is below 0"):
        replace(speed(1.0), cache_sensitivity=-1.0)
    with pytest.raises(WrongThroughput, match="unknown type huge"):
        ThroughputProblem((), TYPES, {"huge": 1}, STEPS, PENALTY)
    with pytest.raises(WrongThroughput, match="share a name"):
        ThroughputProblem((model("a", 1.0, 1.0), model("a", 1.0, 1.0)), TYPES, {"big": 1}, STEPS, PENALTY)


def test_models_alike_are_placed_on_gpus_alike_at_the_work_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(*args: Any) -> float:
        asked.append(args)
        return fill(*args)

    monkeypatch.setattr(subsets, "fill", counted)
    first = model("0", 0.5, 40.0)
    problem = ThroughputProblem(
        tuple(replace(first, name=f"{number}") for number in range(40)), TYPES, {"big": 20, "small": 20}, STEPS, PENALTY
    )
    answer = greedy.solve(problem)
    assert judge.violations(problem, answer) == []
    assert len(answer) == 40
    assert len(asked) <= 2 * greedy.MOST_TOGETHER
    assert bound.upper_bound(problem) >= judge.objective(problem, answer)
    assert len(asked) <= 2 * (greedy.MOST_TOGETHER + len(STEPS))
