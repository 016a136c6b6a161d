"""OLTunes plans a fleet: candidates by its objective, GPUs shared by models that suit each other, variants mixed."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from solvers.oltunes.fleet import plan
from solvers.oltunes.fleet.affinities import FleetAffinities, is_high
from solvers.oltunes.fleet.candidates import best_records, estimate_power_w, score_candidates
from solvers.planners.ask import find_plan
from solvers.planning.carried import accepted_rates
from solvers.planning.fleet.offers import SHARED_PRESSURE
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.growing import GrowingFleet
from solvers.planning.judge import judge
from solvers.planning.machines import GpuType
from solvers.planning.plan import Plan
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import (
    Curve,
    Demand,
    Job,
    JobProfile,
    Node,
    Place,
    PlacedJob,
    Policy,
    Problem,
    Profile,
    RunningState,
    Service,
    Variant,
)
from solvers.planning.search.promise import keep
from solvers.planning.solve import SolveBudget
from tests.solvers.planning.random_problems import random_problem

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
DEMAND = Demand(cpu_cores=1, host_memory_gib=1, pressure=((10, 0.02), (100, 0.3)), sensitivity=0.1)
COMPUTING: Curve = ((10, 60.0), (20, 30.0), (50, 12.0), (70, 6.5), (100, 6.0))
WAITING: Curve = ((10, 12.0), (20, 11.0), (50, 10.5), (100, 10.0))


def problem_of(
    rate: float = 20.0, gpus: int = 2, memory_gib: float = 40.0, priorities: tuple[int, int] = (200, 50)
) -> Problem:
    """Returns a fleet with a computing service that may use a small variant, and one that waits for memory."""
    kinds = {
        "fast": GpuType("fast", memory_gib, 40, 300, (1500.0,)),
        "slow": GpuType("slow", memory_gib, 10, 150, (1500.0,)),
    }
    profiles = []
    for kind, times in (("fast", 1.0), ("slow", 3.0)):
        for model, variant, curve, speed in (
            ("vision", "large", COMPUTING, 1.0),
            ("vision", "small", COMPUTING, 0.4),
            ("words", "small", WAITING, 1.0),
            ("words", "large", WAITING, 1.5),
        ):
            latency = {
                batch: tuple((sm, ms * times * speed * grows) for sm, ms in curve)
                for batch, grows in ((1, 1.0), (8, 2.5))
            }
            profiles.append(Profile(model, variant, kind, latency, {1: 3.0, 8: 12.0}, DEMAND))
    services = [
        Service("shop/see", "shop", "vision", ("large", "small"), 100, 98, rate, priority=priorities[0]),
        Service("shop/say", "shop", "words", ("small",), 200, 98, rate, priority=priorities[1]),
    ]
    return Problem(
        gpu_types=kinds,
        nodes={kind: Node(kind, kind, tuple(range(gpus)), 64, 256, 1.0) for kind in kinds},
        models={
            "vision": (Variant("large", 0.8), Variant("small", 0.7)),
            "words": (Variant("large", 0.9), Variant("small", 0.6)),
        },
        profiles={profile.key: profile for profile in profiles},
        services={service.name: service for service in services},
        policy=Policy(planner="oltunes"),
    )


def planned(problem: Problem, before: PlannerDraft | None = None) -> PlannerDraft:
    """Returns the plan with what an earlier one made running, once the judge has accepted it."""
    problem = replace(problem, state=RunningState(NOON, before.instances if before else ()))
    draft = plan(problem, {}, PlannerBudget())
    verdict = judge(problem, Plan(draft.instances, unserved=draft.unserved), simulate=False, keeps=keep)
    assert verdict.is_right, verdict.violations
    return draft


@pytest.mark.parametrize(
    ("tdp_w", "total_gib", "sm_percent", "used_gib", "seconds", "watts"),
    [(300, 16, 70, 8, 12, 1068), (200, 12, 70, 6, 19, 991), (300, 16, 20, 8, 2, 108), (200, 12, 20, 6, 3.8, 113.2)],
)
def test_the_estimated_power_is_that_of_the_papers_examples(
    tdp_w: float, total_gib: float, sm_percent: float, used_gib: float, seconds: float, watts: float
) -> None:
    gpu = GpuType("any", total_gib, 60, tdp_w, (1500.0,))
    assert estimate_power_w(gpu, sm_percent, used_gib, seconds) == pytest.approx(watts)


def test_candidates_are_three_of_each_of_the_two_best_types_and_load_turns_them_to_less_power() -> None:
    problem = problem_of()
    service = problem.services["shop/see"]
    shapes = GrowingFleet(problem).shapes[service.name]
    calm, busy = (score_candidates(problem, service, shapes, 20.0, load) for load in (0.0, 1.0))
    chosen = best_records(calm)
    assert len(chosen) == 6
    assert {record.shape.pool.gpu_type for record in chosen} == {"fast", "slow"}
    assert [record.score for record in calm] == sorted((record.score for record in calm), reverse=True)
    power = [problem.gpu_types[found[0].shape.pool.gpu_type].idle_w for found in (calm, busy)]
    assert power == [40, 10]


def test_throughput_decides_for_work_that_is_throughput_oriented() -> None:
    problem = problem_of(rate=2000.0)
    shapes = GrowingFleet(problem).shapes["shop/say"]
    service = problem.services["shop/say"]
    oriented = score_candidates(problem, service, shapes, 2000.0, 0.0)[0].shape
    critical = score_candidates(problem, replace(service, priority=200), shapes, 2000.0, 0.0)[0].shape
    assert oriented.rate_per_second >= critical.rate_per_second
    assert critical.exec_ms <= oriented.exec_ms


def test_models_share_a_gpu_only_where_they_suit_each_other() -> None:
    problem = problem_of()
    together = planned(problem)
    assert {line.service for line in together.instances} == {"shop/see", "shop/say"}
    assert len({line.place for line in together.instances}) == 1  # one computes and is large, one waits and is small
    service = replace(problem.services["shop/say"], variants=("large",))
    apart = planned(replace(problem, services={**problem.services, "shop/say": service}))
    assert len({line.place for line in apart.instances}) == 2  # two large variants


def test_affinity_is_the_mean_of_workload_and_variant() -> None:
    problem = problem_of()
    see, affinities = problem.services["shop/see"], FleetAffinities(problem, 2)
    line = next(line for line in planned(problem).instances if line.service == "shop/say")
    assert is_high(problem, see.model, "large")
    assert not is_high(problem, problem.services["shop/say"].model, "small")
    shapes = [s for s in GrowingFleet(problem).shapes[see.name] if (s.pool.gpu_type, s.batch) == ("fast", 1)]
    large, small = (next(shape for shape in shapes if shape.variant == name) for name in ("large", "small"))
    affinities.note(1, [line])
    (idle, high), (_, low) = (affinities.find_means(see, shape, np.array([0, 1])) for shape in (large, small))
    assert high - low == 25.0  # (100 - 50) / 2
    assert 99.0 < high <= 100.0
    assert idle == 100.0
    affinities.note(1, [line, line])
    assert affinities.find_means(see, small, np.array([1]))[0] == low


def test_variants_are_mixed_up_to_a_loss_of_accuracy_of_four_percent() -> None:
    problem = problem_of(rate=1200.0, gpus=8)
    lines = [line for line in planned(problem).instances if line.service == "shop/see"]
    assert {line.variant for line in lines} == {"large", "small"}
    known = {"large": 0.8, "small": 0.7}
    served = sum(line.rate_per_second for line in lines)
    mean = sum(line.rate_per_second * known[line.variant] for line in lines) / served
    assert mean >= 0.96 * 0.8 * (1 - 0.01)


def test_the_idlest_gpu_comes_first_and_what_runs_stays() -> None:
    first = planned(problem_of(rate=20.0))
    risen = planned(problem_of(rate=600.0), first)
    assert {line.id: line.place for line in first.instances}.items() <= {
        line.id: line.place for line in risen.instances
    }.items()
    used = {line.place for line in first.instances}
    assert any(line.place not in used for line in risen.instances)
    fallen = planned(problem_of(rate=20.0), risen)
    assert len(fallen.instances) < len(risen.instances)


def test_leftover_memory_goes_to_a_larger_batch_of_throughput_oriented_work() -> None:
    large, small = planned(problem_of(rate=90.0)), planned(problem_of(rate=90.0, memory_gib=10.0))
    batches = [max(line.batch for line in draft.instances if line.service == "shop/say") for draft in (large, small)]
    assert batches == [8, 1]


def test_a_larger_batch_leaves_jobs_their_memory() -> None:
    profile = JobProfile(((10, 1.0), (50, 2.0)), 30.0)
    jobs = {f"lab/{kind}": Job(f"lab/{kind}", "lab", "training", 1e6, {kind: profile}) for kind in ("fast", "slow")}
    placed = tuple(PlacedJob(name, name.removeprefix("lab/"), 0, 10, 30.0) for name in jobs)
    problem = replace(problem_of(rate=90.0, gpus=1), jobs=jobs, state=RunningState(NOON, (), placed))
    draft = plan(problem, {}, PlannerBudget())
    assert {line.service for line in draft.instances} == set(problem.services)
    held: dict[Place, float] = defaultdict(float)
    for line in draft.instances:
        held[line.place] += line.memory_gib
    assert max(held.values()) <= 10.0


def test_the_same_question_has_the_same_plan() -> None:
    assert planned(problem_of(rate=900.0)) == planned(problem_of(rate=900.0))


def test_a_fleet_without_gpus_leaves_everything_unserved() -> None:
    problem = problem_of()
    draft = plan(replace(problem, nodes={}), {}, PlannerBudget())
    assert not draft.instances
    assert {line.service for line in draft.unserved} == set(problem.services)


@pytest.mark.slow
def test_feedback_places_all_tasks_that_have_room() -> None:
    problem = problem_of(rate=1e6, gpus=110)
    see, say = (replace(service, variants=("large",)) for service in problem.services.values())  # they do not suit
    nodes = {name: replace(node, cpu_cores=500, host_memory_gib=500) for name, node in problem.nodes.items()}
    draft = planned(replace(problem, nodes=nodes, services={see.name: see, say.name: say}))
    fed_back = int(draft.method.split(" gathered, ")[1].split()[0])
    assert fed_back > 200
    assert len(draft.instances) == 2 * len({line.place for line in draft.instances}) == 440


def test_what_is_counted_after_each_step_is_what_the_whole_fleet_carries() -> None:
    problem = problem_of(rate=900.0, gpus=6)
    fleet = GrowingFleet(problem)
    for number in range(12):
        service = list(problem.services.values())[number % 2]
        shape = min(fleet.shapes[service.name], key=lambda shape: (shape.batch, shape.sm_percent))
        seat = fleet.add(service, shape, fleet.rooms.places_for(shape, service)[0])
        if number % 5 == 0:
            fleet.retune(seat, next(s for s in fleet.shapes[service.name] if s.batch > shape.batch))
        fleet.count()
        rates = accepted_rates(problem, fleet.seats)
        assert {line.id: fleet.rates[line.id] for line in fleet.seats} == {
            line.id: rate for line, rate in zip(fleet.seats, rates, strict=True)
        }
        rooms = FleetRooms(problem, fleet.seats, (), SHARED_PRESSURE)
        assert rooms.free_gib == pytest.approx(fleet.rooms.free_gib)
        for line in problem.services.values():
            carried = sum(fleet.rates[own.id] for own in fleet.of(line.name))
            assert fleet.short(line) == pytest.approx(max(0.0, line.rate_per_second - carried))


def test_more_may_run_on_a_gpu_than_the_policy_allows_by_now() -> None:
    problem = random_problem(20135)
    assert problem.state
    on = Counter(line.place for line in problem.state.running)
    assert max(on.values()) > problem.policy.clients_per_gpu
    found = find_plan(problem, "oltunes", SolveBudget(seconds=None, work=200, seed=0), alone=True, bounds=False)
    assert not judge(problem, found.plan).violations
