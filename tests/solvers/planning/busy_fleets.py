"""Draws small fleets with jobs that run, some of which must stay, and instances with names that new ones get."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from solvers.planning.problem import (
    Demand,
    GpuType,
    Instance,
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
from tests.solvers.planning.random_problems import NOON

CLOCKS = (600.0, 900.0, 1200.0)


def busy_fleet(seed: int) -> Problem:
    """A fleet of one to four GPUs with jobs that run, some of which must stay, and hardly any watts for services."""
    r = Random(seed)
    kind = GpuType("gpu", 24.0, r.uniform(10, 40), r.choice([150.0, 250.0, 1000.0]), CLOCKS[: r.randint(1, 3)])
    nodes = {f"n{n}": Node(f"n{n}", "gpu", tuple(range(r.randint(1, 2))), 64, 256, 1.0) for n in range(r.randint(1, 2))}
    names = [f"s{n}" for n in range(r.randint(1, 4))]
    profiles = [Profile(name, "v", "gpu", {1: ((20, 12.0), (50, 8.0), (100, 6.0)), 4: ((20, 30.0), (50, 18.0),
                (100, 12.0))}, {1: 2.0, 4: 3.0}, _demand(r)) for name in names]  # fmt: skip
    services = {
        f"shop/{name}": Service(
            f"shop/{name}", "shop", name, ("v",), r.uniform(60, 300), 98, r.uniform(20, 400),
            min_instances=r.choice([1, 1, 1, 2]),
        )
        for name in names
    }  # fmt: skip
    problem = Problem(
        {"gpu": kind}, nodes, {name: (Variant("v", 0.8),) for name in names},
        {profile.key: profile for profile in profiles}, services,
    )  # fmt: skip
    places = [(node.name, gpu) for node in nodes.values() for gpu in node.gpus]
    busy = r.sample(places, r.randint(1, len(places)))
    jobs = {f"lab/j{n}": _job(r, f"lab/j{n}") for n in range(len(busy))}
    placed = tuple(PlacedJob(name, *place, 20, 2.0) for name, place in zip(jobs, busy, strict=True))
    idle_w = kind.idle_w * len(places)
    staying_w = sum(jobs[job.job].profiles["gpu"].demand.power_w[0][1] for job in placed)
    policy = Policy(power_budget_w=idle_w + staying_w + r.uniform(0, 120), same_model_per_gpu=r.choice([1, 2]))
    running = _running(r, problem, places) if r.random() < 0.5 else ()
    return replace(problem, jobs=jobs, policy=policy, state=RunningState(NOON, running, placed))


def _demand(r: Random) -> Demand:
    power = ((20, r.uniform(5, 40)), (100, r.uniform(40, 150)))
    return Demand(1.0, 1.0, ((20, 0.1), (100, 0.4)), r.choice([0.0, 0.3]), power, r.uniform(0.4, 1), r.uniform(1, 3))


def _job(r: Random, name: str) -> Job:
    demand = replace(_demand(r), power_w=((20, r.uniform(20, 90)), (60, 100.0)))
    profile = JobProfile(((20, 1.0), (60, 2.0)), 2.0, demand)
    return Job(name, "lab", "training", 10_000, {"gpu": profile}, is_preemptible=r.random() < 0.4)


def _running(r: Random, problem: Problem, places: list[Place]) -> tuple[Instance, ...]:
    clock = r.choice(problem.gpu_types["gpu"].clocks_mhz)
    return tuple(
        Instance(f"{name}/new-1", name, *r.choice(places), "v", 4, 0.0, 20, 3.0, clock, service.rate_per_second)
        for name, service in problem.services.items()
        if r.random() < 0.6
    )
