"""Small fleets under watts, drawn by Hypothesis, and the best answer by trying everything."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

from hypothesis import strategies as st

from lab.morak import PoweredGpu, PoweredSetting, PowerProblem, judge
from lab.morak.problem import PoweredModel
from solvers.morak.power.problem import PoweredResident
from solvers.planning.problem import Demand, GpuType, Profile

SHARES = (20, 50, 100)


@st.composite
def profiles(draw: st.DrawFn, gpu_type: str) -> Profile:
    """One to three batches over two or three shares; noise of a profile included, such as a kink the other way."""
    batches = draw(st.sampled_from([(1,), (1, 4), (1, 2, 8)]))
    shares = draw(st.sampled_from([(20, 100), (20, 50, 100)]))
    base = draw(st.floats(1, 30))
    latency = {
        batch: tuple((share, base * batch**0.8 * (1 + draw(st.floats(0, 3)) * (100 - share) / 100)) for share in shares)
        for batch in batches
    }
    return Profile(
        "model", "only", gpu_type, latency, {batch: draw(st.floats(0.5, 3)) for batch in batches},
        Demand(
            pressure=((20, draw(st.floats(0, 0.4))), (100, draw(st.floats(0.4, 1)))),
            sensitivity=draw(st.sampled_from([0.0, 0.2, 0.8])),
            power_w=((20, draw(st.floats(0, 40))), (100, draw(st.floats(40, 200)))),
            clock_exponent=draw(st.sampled_from([0.0, 0.8, 1.0])),
            power_exponent=draw(st.sampled_from([1.0, 2.5])),
        ),
    )  # fmt: skip


@st.composite
def problems(draw: st.DrawFn, most_gpus: int = 3) -> PowerProblem:
    types = {
        name: GpuType(name, draw(st.floats(2, 6)), draw(st.floats(0, 30)), draw(st.floats(80, 260)), clocks)
        for name, clocks in (("a", (600.0, 1500.0)), ("b", (900.0,)))
    }
    names = ["m0", "m1"][: draw(st.integers(1, 2))]
    models = []
    for name in names:
        measured = draw(st.sampled_from([("a",), ("a", "b")]))
        profiled = {gpu_type: draw(profiles(gpu_type)) for gpu_type in measured}
        models.append(
            PoweredModel(
                name, draw(st.floats(5, 150)), profiled, dict.fromkeys(measured, SHARES), draw(st.floats(0.5, 2))
            )
        )
    gpus = tuple(
        PoweredGpu(
            f"g{place}",
            draw(st.sampled_from(["a", "a", "b"])),
            draw(st.sampled_from([None, 60.0, 150.0])),
            draw(st.sampled_from([None, None, ("m0",)])),
        )
        for place in range(draw(st.integers(1, most_gpus)))
    )
    budget = draw(st.one_of(st.none(), st.floats(0, 250 * len(gpus))))
    return PowerProblem(types, gpus, tuple(models), budget, residents_per_gpu=2)


def every_setting(problem: PowerProblem, gpu: PoweredGpu) -> list[PoweredSetting]:
    """Returns every possible setting of one GPU, valid or not."""
    residents = [
        PoweredResident(model.name, share, batch)
        for model in problem.models
        if gpu.gpu_type in model.profiles
        for share in model.sm_percents[gpu.gpu_type]
        for batch in model.profiles[gpu.gpu_type].latency_ms
    ]
    return [
        PoweredSetting(gpu.name, clock, chosen)
        for count in range(1, problem.residents_per_gpu + 1)
        for chosen in combinations_with_replacement(residents, count)
        if sum(resident.sm_percent for resident in chosen) <= 100
        for clock in problem.gpu_types[gpu.gpu_type].clocks_mhz
    ]


def brute_force(problem: PowerProblem) -> float:
    """The most that the judge allows, by trying every combination that is not beaten GPU by GPU."""
    unlimited = PowerProblem(problem.gpu_types, problem.gpus, problem.models, None, problem.residents_per_gpu)
    idle = {gpu.name: problem.gpu_types[gpu.gpu_type].idle_w for gpu in problem.gpus}
    choices: list[list[tuple[float, float]]] = []
    for gpu in problem.gpus:
        right = [
            (judge.watts(problem, setting) - idle[gpu.name], judge.worth_per_second(problem, (setting,)))
            for setting in every_setting(problem, gpu)
            if not judge.violations(unlimited, (setting,))
        ]
        best: list[tuple[float, float]] = [(0.0, 0.0)]
        for watts, worth in sorted(right, key=lambda pair: (pair[0], -pair[1])):
            if worth > best[-1][1]:
                best.append((watts, worth))
        choices.append(best)
    room = float("inf") if problem.budget_w is None else problem.budget_w - sum(idle.values())
    return max(
        (
            sum(worth for _, worth in chosen)
            for chosen in product(*choices)
            if sum(watts for watts, _ in chosen) <= room or not any(worth for _, worth in chosen)
        ),
        default=0.0,
    )
