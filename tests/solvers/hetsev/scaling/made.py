"""Small scaling problems, and the best answer by trying all."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from solvers.hetsev.scaling import InstanceType, ScalingProblem, ScalingPromise, judge


@st.composite
def instance_types(draw: st.DrawFn, name: str) -> InstanceType:
    return InstanceType(
        name=name,
        throughput_per_second=float(draw(st.integers(1, 12))),
        exec_ms=float(draw(st.sampled_from([50, 100, 150]))),
        gpu_memory_gib=float(draw(st.integers(1, 4))),
        price_per_gib=draw(st.sampled_from([0.024, 0.191, 0.5])),
        launch_seconds=float(draw(st.integers(0, 20))),
        running=draw(st.integers(0, 3)),
        most=draw(st.one_of(st.none(), st.integers(3, 5))),
    )


@st.composite
def problems(draw: st.DrawFn) -> ScalingProblem:
    kinds = tuple(draw(instance_types(f"type-{index}")) for index in range(draw(st.integers(1, 3))))
    return ScalingProblem(
        arrivals_per_second=float(draw(st.integers(0, 30))),
        promise=ScalingPromise(100.0),
        types=kinds,
        unpredictability=draw(st.sampled_from([0.0, 0.01, 0.1])),
    )


def best_cost(problem: ScalingProblem) -> float:
    """The cost of the best right answer, by trying every number of every type."""
    ranges = []
    for kind in problem.types:
        most = int(problem.arrivals_per_second / kind.throughput_per_second) + 1
        ranges.append(range(-kind.running, most + 1))
    names = [kind.name for kind in problem.types]
    answers = (dict(zip(names, numbers, strict=True)) for numbers in product(*ranges))
    return min(judge.cost(problem, answer) for answer in answers if not judge.violations(problem, answer))
