"""Batch placement against brute force; each rule judged by itself."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.hetsev.placement import (
    PlacementGpu,
    PlacementInstance,
    PlacementNode,
    PlacementProblem,
    WrongPlacement,
    exact,
    greedy,
    judge,
    place,
    queues,
)
from solvers.hetsev.placement import _certified as certified
from solvers.proof import SolverBug

SOAK = bool(os.environ.get("GPUWRIGHT_SOAK"))
FEW, MANY = (150, 1000) if SOAK else (15, 60)


@st.composite
def problems(draw: st.DrawFn) -> PlacementProblem:
    nodes = tuple(
        PlacementNode(f"n{i}", float(draw(st.integers(2, 8))), float(draw(st.integers(4, 16)))) for i in range(2)
    )
    gpus = tuple(
        PlacementGpu(
            f"g{i}", f"n{i % 2}", draw(st.sampled_from(["t4", "v100"])), float(draw(st.integers(4, 16))),
            draw(st.sampled_from([0.5, 1.0, 2.25])),
        )
        for i in range(draw(st.integers(1, 3)))
    )  # fmt: skip
    instances = tuple(
        PlacementInstance(
            f"i{i}", draw(st.sampled_from(["bert", "resnet"])), draw(st.sampled_from([1.0, 2.5, 4.0, 7.3])),
            float(draw(st.integers(0, 3))), float(draw(st.integers(0, 4))),
            draw(st.sampled_from([None, frozenset({"v100"})])), float(draw(st.integers(0, 9))),
        )
        for i in range(draw(st.integers(1, 4)))
    )  # fmt: skip
    return PlacementProblem(nodes, gpus, instances, same_model_per_gpu=draw(st.integers(1, 2)))


def best_cost(problem: PlacementProblem) -> float:
    """By trying every GPU, and none, for every instance."""
    choices = [None, *(gpu.name for gpu in problem.gpus)]
    best = float("inf")
    for places in product(choices, repeat=len(problem.instances)):
        pairs = zip(problem.instances, places, strict=True)
        placement = {instance.name: where for instance, where in pairs if where is not None}
        if not judge.violations(problem, placement):
            best = min(best, judge.cost(problem, placement))
    return best


@settings(max_examples=FEW, deadline=None)
@given(problem=problems())
def test_cp_sat_equals_brute_force_and_proves_it(problem: PlacementProblem) -> None:
    outcome = place(problem)
    best = best_cost(problem)
    assert not judge.violations(problem, outcome.placement)
    assert outcome.proof.value == pytest.approx(best)
    assert outcome.proof.bound == pytest.approx(best)
    assert place(problem) == outcome


@settings(max_examples=MANY, deadline=None)
@given(problem=problems())
def test_heuristics_are_right_and_never_cheaper(problem: PlacementProblem) -> None:
    best = best_cost(problem)
    for placement in (greedy.solve(problem), queues.schedule(problem)):
        assert judge.violations(problem, placement) == []
        assert judge.cost(problem, placement) >= best - 1e-9


@settings(max_examples=MANY, deadline=None)
@given(problem=problems())
def test_no_budget_still_answers_and_every_unplaced_instance_has_a_reason(problem: PlacementProblem) -> None:
    outcome = place(problem, work=0)
    assert not judge.violations(problem, outcome.placement)
    assert outcome.proof.bound is None
    assert outcome.proof.method.endswith("bound unknown")
    assert set(outcome.reasons) == {instance.name for instance in problem.instances} - set(outcome.placement)
    assert all(outcome.reasons.values())


NODE = PlacementNode("n", 4.0, 8.0)
GPU = PlacementGpu("g", "n", "t4", 16.0)
ONE = PlacementInstance("a", "bert", 4.0, 1.0, 2.0)
TWO = PlacementInstance("b", "bert", 4.0, 1.0, 2.0)


def test_every_rule_is_judged_on_its_own() -> None:
    problem = PlacementProblem((NODE,), (GPU, PlacementGpu("h", "n", "v100", 32.0)), (ONE, TWO))
    assert judge.violations(problem, {"a": "g", "b": "h"}) == []
    assert judge.violations(problem, {"a": "g", "b": "g"}) == ["g: 2 instances of bert; the limit is 1"]
    big = replace(problem, instances=(replace(ONE, memory_gib=17.0), TWO))
    assert judge.violations(big, {"a": "g"}) == ["g: 17 GiB are used of 16"]
    busy = replace(problem, instances=(replace(ONE, cpu_cores=4.0), TWO))
    assert judge.violations(busy, {"a": "g", "b": "h"}) == ["n: 5 CPU cores are used of 4"]
    wide = replace(problem, instances=(replace(ONE, host_memory_gib=7.0), TWO))
    assert judge.violations(wide, {"a": "g", "b": "h"}) == ["n: 9 GiB of host memory are used of 8"]
    picky = replace(problem, instances=(replace(ONE, gpu_types=frozenset({"v100"})), TWO))
    assert judge.violations(picky, {"a": "g"}) == ["a is placed on g, a t4 that does not suit it"]
    occupied = replace(problem, current={"a": "g"})
    assert judge.violations(occupied, {"a": "h"}) == ["a is placed on g and must stay there; it is moved to h"]
    assert judge.violations(problem, {"c": "g"}) == ["c is placed on g; one of the two is unknown"]


def test_placed_instances_stay_and_the_rest_is_placed_around_them() -> None:
    problem = PlacementProblem((NODE,), (GPU, PlacementGpu("h", "n", "t4", 16.0)), (ONE, TWO), current={"a": "h"})
    assert place(problem).placement == {"a": "h", "b": "g"}


def test_a_reason_names_the_limit_that_binds() -> None:
    assert place(PlacementProblem((NODE,), (GPU,), (ONE, TWO))).reasons == {
        "b": "each of the 1 GPUs with room already runs an instance of bert"
    }
    huge = replace(ONE, memory_gib=40.0)
    assert place(PlacementProblem((NODE,), (GPU,), (huge,))).reasons == {"a": "no GPU of a suitable type has 40 GiB"}
    full = PlacementProblem(
        (NODE,), (GPU,), (replace(ONE, memory_gib=14.0), replace(TWO, model="gpt")), current={"a": "g"}
    )
    assert place(full).reasons == {"b": "needs 4 GiB; the largest free slot is 2 GiB"}
    hungry = PlacementProblem((NODE,), (GPU,), (replace(ONE, cpu_cores=5.0),))
    assert place(hungry).reasons == {"a": "needs 5 CPU cores and 2 GiB of host memory; no node has both"}


def test_decimal_memory_is_added_up_exactly() -> None:
    thirds = tuple(PlacementInstance(f"i{i}", f"m{i}", 0.1) for i in range(3))
    claim = exact.solve(PlacementProblem((NODE,), (PlacementGpu("g", "n", "t4", 0.3),), thirds), 5.0)
    assert claim is not None
    assert len(claim.placement) == 3


def test_a_rounding_error_of_a_sum_overfills_no_gpu() -> None:
    tenths = 0.1 + 0.2  # 0.30000000000000004
    pair = tuple(PlacementInstance(f"i{i}", f"m{i}", tenths) for i in range(2))
    outcome = place(PlacementProblem((NODE,), (PlacementGpu("g", "n", "t4", 0.6),), pair))
    assert len(outcome.placement) == 2
    assert outcome.proof.gap == 0


def test_a_current_placement_that_breaks_a_rule_is_kept_alone() -> None:
    problem = PlacementProblem((NODE,), (GPU, PlacementGpu("h", "n", "v100", 32.0)), (ONE, TWO), current={"a": "g"})
    unsuited = replace(problem, instances=(replace(ONE, gpu_types=frozenset({"v100"})), TWO))
    outcome = place(unsuited)
    assert outcome.placement == {"a": "g"}
    assert outcome.proof.method == "current placement; bound unknown"
    assert outcome.reasons == {"b": "the current placement breaks a rule: a is placed on g, a t4 that does not suit it"}


def test_a_cost_under_the_bound_is_a_bug_of_a_solver() -> None:
    with pytest.raises(SolverBug, match="best fit costs 1"):
        certified(PlacementProblem((NODE,), (GPU,), (ONE,)), {"a": "g"}, 1.1, "best fit")


def test_a_problem_that_names_an_unknown_thing_is_refused() -> None:
    with pytest.raises(WrongPlacement, match="unknown node"):
        PlacementProblem((), (GPU,), ())
    with pytest.raises(WrongPlacement, match="two instances are called a"):
        PlacementProblem((NODE,), (GPU,), (ONE, ONE))
    with pytest.raises(WrongPlacement, match="one of the two is unknown"):
        PlacementProblem((NODE,), (GPU,), (ONE,), current={"b": "g"})
