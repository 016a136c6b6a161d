"""Jobs beside services: the proved answer is the best there is, no service is pressed too hard, Mudi's way holds."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.mudi.multiplexing import (
    MultiplexedGpu,
    MultiplexedJob,
    MultiplexedService,
    MultiplexingProblem,
    WrongMultiplexing,
    exact,
    greedy,
    judge,
    multiplex,
    slope,
)
from solvers.planning.problem import Demand, Job, JobProfile
from tests.solvers.known import known
from tests.support.soak import scaled

MANY = settings(max_examples=scaled(500, 30), deadline=None)
NEAR = 1e-9


def training(draw: st.DrawFn) -> JobProfile:
    low = draw(st.sampled_from([5, 10, 20]))
    pace = draw(st.floats(0.5, 5))
    return JobProfile(
        ((low, pace), (60, pace * draw(st.floats(1, 3))), (draw(st.sampled_from([70, 100])), pace * 3.5)),
        draw(st.floats(1, 9)),
        Demand(
            pressure=((20, draw(st.floats(0, 0.4))), (100, draw(st.floats(0.4, 1)))),
            sensitivity=draw(st.sampled_from([0.0, 0.3, 0.9])),
            power_w=((20, draw(st.floats(0, 40))), (100, 120.0)),
            clock_exponent=draw(st.sampled_from([0.0, 0.8])),
            power_exponent=2.0,
        ),
    )


@st.composite
def problems(draw: st.DrawFn, most_gpus: int = 3, most_jobs: int = 4) -> MultiplexingProblem:
    gpus = []
    for place in range(draw(st.integers(1, most_gpus))):
        services = tuple(
            MultiplexedService(
                f"s{place}{number}", draw(st.integers(5, 45)), ((5, 90.0), (30, 30.0), (100, 25.0)),
                draw(st.floats(0, 0.6)), draw(st.floats(0, 2.5)), draw(st.floats(0, 1)),
            )
            for number in range(draw(st.integers(0, 2)))
        )  # fmt: skip
        clock, watts = draw(st.sampled_from([1.0, 0.6])), draw(st.sampled_from([float("inf"), 90.0]))
        gpus.append(
            MultiplexedGpu(f"g{place}", draw(st.sampled_from("aab")), services, draw(st.floats(2, 24)), watts, clock)
        )
    jobs = []
    for place in range(draw(st.integers(0, most_jobs))):
        measured = {gpu_type: training(draw) for gpu_type in draw(st.sampled_from(["a", "ab", "ab"]))}
        jobs.append(Job(f"lab/j{place}", "lab", "training", 1000.0, measured))
    return MultiplexingProblem(tuple(gpus), tuple(jobs), waiting_seconds=draw(st.sampled_from([0.5, 1000.0])))


def brute_force(problem: MultiplexingProblem) -> float:
    """The least cost that the judge allows, by trying every GPU for every job."""
    best = float("inf")
    for homes in product([*problem.gpus, None], repeat=len(problem.jobs)):
        placed = []
        for gpu in problem.gpus:
            mine = [job for job, home in zip(problem.jobs, homes, strict=True) if home is gpu]
            if any(gpu.gpu_type not in job.profiles for job in mine):
                break
            for job in mine:
                top = job.profiles[gpu.gpu_type].units_per_second[-1][0]
                placed.append(MultiplexedJob(job.name, gpu.name, min(gpu.spare_sm_percent // len(mine), top)))
        else:
            if not judge.violations(problem, placed):
                best = min(best, judge.cost_seconds(problem, placed))
    return best


@MANY
@given(problems())
def test_exact_is_brute_force(problem: MultiplexingProblem) -> None:
    answer = multiplex(problem)
    best = brute_force(problem)
    assert judge.violations(problem, answer.placed) == []
    assert answer.proof.value == pytest.approx(best, rel=NEAR)
    assert answer.proof.bound == pytest.approx(best, rel=NEAR)


@settings(max_examples=scaled(100, 8), deadline=None)
@given(problems(most_gpus=4, most_jobs=6))
def test_exact_is_brute_force_at_four_gpus_and_six_jobs(problem: MultiplexingProblem) -> None:
    assert multiplex(problem).proof.value == pytest.approx(brute_force(problem), rel=NEAR)


@MANY
@given(problems(most_jobs=6))
def test_mudis_choice_is_valid_and_never_better(problem: MultiplexingProblem) -> None:
    fast = greedy.solve(problem)
    assert judge.violations(problem, fast) == []
    assert judge.cost_seconds(problem, fast) >= multiplex(problem).proof.value * (1 - NEAR)


@MANY
@given(problems(), st.integers(0, 300))
def test_the_bound_holds_however_little_work_is_allowed(problem: MultiplexingProblem, work: int) -> None:
    hurried = multiplex(problem, work)
    assert judge.violations(problem, hurried.placed) == []
    assert known(hurried.proof.bound) <= multiplex(problem).proof.value * (1 + NEAR)


@settings(max_examples=scaled(100, 10), deadline=None)
@given(problems())
def test_highs_finds_what_the_subsets_find(problem: MultiplexingProblem) -> None:
    jobs, gpus = sorted(problem.jobs, key=lambda j: j.name), sorted(problem.gpus, key=lambda g: g.name)
    claim = exact._by_highs(problem, gpus, jobs, exact._columns(problem, gpus, jobs), 10**6, 0)
    best = multiplex(problem).proof.value
    assert judge.cost_seconds(problem, claim.placed) == pytest.approx(best, rel=1e-6, abs=1e-5)
    assert claim.bound <= best * (1 + NEAR)
    assert claim.bound == pytest.approx(best, rel=1e-5, abs=1e-5)


@MANY
@given(problems(), st.floats(0, 1))
def test_a_service_that_bears_less_never_lowers_the_cost(problem: MultiplexingProblem, factor: float) -> None:
    strict = replace(
        problem,
        gpus=tuple(
            replace(gpu, services=tuple(replace(service, bears=service.bears * factor) for service in gpu.services))
            for gpu in problem.gpus
        ),
    )
    assert multiplex(strict).proof.value >= multiplex(problem).proof.value * (1 - NEAR)


@MANY
@given(problems())
def test_the_same_problem_has_the_same_answer_in_any_order_of_gpus(problem: MultiplexingProblem) -> None:
    assert multiplex(replace(problem, gpus=problem.gpus[::-1])) == multiplex(problem)


@MANY
@given(problems())
def test_the_relaxation_named_for_a_waiting_job_helps(problem: MultiplexingProblem) -> None:
    answer = multiplex(problem)
    jobs = {job.name: job for job in problem.jobs}
    for waiting in answer.waiting:
        if "a profile on" in waiting.relaxation or "a wait that counts as" in waiting.relaxation:
            continue
        name = re.findall(r"nearest is (\w+):", waiting.reason)[0]
        (gpu,) = (gpu for gpu in problem.gpus if gpu.name == name)
        more, gpu = relaxed(problem, gpu, waiting.relaxation)
        mine = [jobs[p.job] for p in answer.placed if p.gpu == name] + [jobs[waiting.job]]
        helped = replace(more, gpus=tuple(gpu if g.name == name else g for g in problem.gpus))
        spare = gpu.spare_sm_percent // len(mine)
        placed = [
            MultiplexedJob(j.name, name, min(spare, j.profiles[gpu.gpu_type].units_per_second[-1][0])) for j in mine
        ]
        placed += [p for p in answer.placed if p.gpu != name]
        faults = judge.violations(helped, placed)
        # Room for more SMs also lets the jobs press and draw more: the next answer then names the next limit.
        assert not faults or "SM%" in waiting.relaxation


def relaxed(
    problem: MultiplexingProblem, gpu: MultiplexedGpu, relaxation: str
) -> tuple[MultiplexingProblem, MultiplexedGpu]:
    """Returns the problem and the GPU with the relaxation applied."""
    for part in relaxation.split(" and "):
        needed, what = part.split(" ", 1)
        value = float(needed) * (1 + 1e-8) + 1e-8
        if what.startswith("jobsPerGpu"):
            problem = replace(problem, jobs_per_gpu=round(value))
        elif what.startswith("spare SM%"):
            services = (
                MultiplexedService("rest", 100 - round(value), ((1, 1.0),), sum(s.pressure for s in gpu.services), 9e9),
            )
            gpu = replace(gpu, services=services)
        elif what.startswith("free GiB"):
            gpu = replace(gpu, free_memory_gib=value)
        elif what.startswith("free W"):
            gpu = replace(gpu, free_w=value)
        else:
            name = what.removeprefix("tolerated by ")
            gpu = replace(gpu, services=tuple(replace(s, bears=value) if s.name == name else s for s in gpu.services))
    return problem, gpu


# A case to read: two GPUs, one whose service is on the steep part of its curve

STEEP = MultiplexedService("shop/steep", 20, ((10, 90.0), (30, 30.0), (100, 25.0)), 0.3, 2.0, 0.5)
GENTLE = MultiplexedService("shop/gentle", 60, ((10, 90.0), (30, 30.0), (100, 25.0)), 0.3, 2.0, 0.5)


def job(name: str, pressure: float = 0.4) -> Job:
    profile = JobProfile(((10, 1.0), (40, 2.0), (80, 3.0)), 4.0, Demand(pressure=((1, pressure),), sensitivity=0.5))
    return Job(name, "lab", "training", 100.0, {"t": profile})


def pair(*jobs: Job) -> MultiplexingProblem:
    return MultiplexingProblem(
        (MultiplexedGpu("g1", "t", (STEEP,), 12.0), MultiplexedGpu("g2", "t", (GENTLE,), 12.0)), jobs
    )


def test_the_slope_is_that_of_the_services_piece_slowed_by_its_neighbours() -> None:
    steep, gentle = pair().gpus
    assert slope(steep, ()) == pytest.approx(60 / 20)
    assert slope(gentle, ()) == pytest.approx(5 / 70)
    assert slope(steep, (job("j", 0.4),)) == pytest.approx(3 * (1 + 0.5 * 0.4))
    assert slope(MultiplexedGpu("g", "t", (replace(STEEP, sm_percent=30),), 1.0), ()) == pytest.approx(
        3
    )  # the steeper side
    assert slope(replace(steep, clock=0.5), ()) == pytest.approx(6)
    assert slope(MultiplexedGpu("g", "t", (), 1.0), ()) == 0


def test_mudi_puts_jobs_where_the_slope_is_smallest_and_the_exact_answer_where_they_run_fastest() -> None:
    problem = pair(job("lab/a"))
    assert greedy.solve(problem) == [MultiplexedJob("lab/a", "g2", 40)]
    assert multiplex(problem).placed == (MultiplexedJob("lab/a", "g1", 80),)


def test_spare_sms_are_split_evenly_and_features_add_up() -> None:
    problem = replace(pair(job("lab/a"), job("lab/b"), job("lab/c")), gpus=pair().gpus[:1])
    answer = multiplex(problem)
    assert [entry.sm_percent for entry in answer.placed] == [26, 26, 26]
    assert answer.steps_per_second["lab/a"] == pytest.approx((1 + 16 / 30) / (1 + 0.5 * (0.3 + 0.8)))


def test_a_fourth_job_waits_with_a_reason() -> None:
    problem = replace(pair(*(job(f"lab/{name}") for name in "abcd")), gpus=pair().gpus[:1])
    (waiting,) = multiplex(problem).waiting
    assert "4 jobs needed, 3 available (jobsPerGpu)" in waiting.reason
    assert "16 GiB needed, 12 available (free GiB on g1)" in waiting.reason
    assert waiting.relaxation == "4 jobsPerGpu and 16 free GiB on g1"


def test_free_power_may_be_used_to_the_last_watt() -> None:
    hungry = replace(job("lab/a").profiles["t"], demand=Demand(power_w=((10, 90.0), (100, 90.0))))
    problem = MultiplexingProblem(
        (MultiplexedGpu("g1", "t", (STEEP,), 4.0, 90.0),), (replace(job("lab/a"), profiles={"t": hungry}),)
    )
    assert multiplex(problem).placed == (MultiplexedJob("lab/a", "g1", 80),)


def test_no_job_costs_a_service_its_slo() -> None:
    proud = replace(STEEP, bears=0.39)
    problem = MultiplexingProblem((MultiplexedGpu("g1", "t", (proud,), 12.0),), (job("lab/a"),))
    answer = multiplex(problem)
    assert answer.placed == ()
    assert answer.waiting[0].reason == "nearest is g1: 0.4 of pressure needed, 0.39 available (tolerated by shop/steep)"


def test_many_jobs_are_placed_within_a_bound() -> None:
    gpus = tuple(MultiplexedGpu(f"g{place:02}", "t", (STEEP if place % 2 else GENTLE,), 12.0) for place in range(6))
    problem = MultiplexingProblem(gpus, tuple(job(f"lab/j{place:02}", place / 40) for place in range(13)))
    quick, slow = multiplex(problem, 0), multiplex(problem, 400_000)
    assert known(slow.proof.bound) <= slow.proof.value <= quick.proof.value
    assert known(slow.proof.bound) >= known(quick.proof.bound) > 0


def test_without_gpus_every_job_waits() -> None:
    answer = multiplex(MultiplexingProblem((), (job("lab/a"),)))
    assert answer.proof.value == 1000
    assert answer.proof.bound == pytest.approx(1000)
    assert answer.waiting[0].relaxation == "a GPU"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpus": (MultiplexedGpu("g", "t", (), 1.0), MultiplexedGpu("g", "t", (), 1.0))}, "two GPUs share a name"),
        ({"jobs": (job("a"), job("a"))}, "two jobs share a name"),
        ({"gpus": (MultiplexedGpu("g", "t", (), 1.0, clock=0.0),)}, "GPU g runs at 0 of its highest clock"),
        ({"gpus": (MultiplexedGpu("g", "t", (GENTLE, GENTLE), 1.0),)}, "hold 120 SM%"),
        ({"jobs_per_gpu": 0}, "jobsPerGpu 0"),
    ],
)
def test_an_invalid_problem_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(WrongMultiplexing, match=words):
        replace(pair(), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("placed", "words"),
    [
        ([("a", "g1", 80), ("a", "g2", 40)], "a job runs twice"),
        ([("a", "g9", 80)], "a runs on the unknown g9"),
        ([("a", "g1", 79)], "a has 79 SM%; its even part is 80 of 10..80"),
        ([("a", "g1", 26), ("b", "g1", 26), ("c", "g1", 26)], "3 jobs; 2 are allowed"),
        ([("a", "g2", 20), ("b", "g2", 20)], "8 GiB; 7 are free"),
        ([("a", "g1", 80)], "shop/steep tolerates a pressure of 0.2; its neighbours cause 0.4"),
        ([("d", "g1", 80)], "d has no profile on t"),
    ],
)
def test_the_judge_names_each_broken_rule(placed: list[tuple[str, str, int]], words: str) -> None:
    first, second = pair().gpus
    stranger = replace(job("d"), profiles={})
    problem = MultiplexingProblem(
        (replace(first, services=(replace(STEEP, bears=0.2),)), replace(second, free_memory_gib=7.0)),
        (job("a"), job("b"), job("c"), stranger),
        jobs_per_gpu=2,
    )
    assert any(words in fault for fault in judge.violations(problem, [MultiplexedJob(*entry) for entry in placed]))
