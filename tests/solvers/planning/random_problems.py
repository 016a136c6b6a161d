"""Small problems that use every feature of the contract, drawn from a seed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Literal

from solvers.planning.problem import (
    Curve,
    Demand,
    GpuType,
    Instance,
    Job,
    JobProfile,
    Limit,
    Node,
    PlacedJob,
    Policy,
    Problem,
    Profile,
    ProfileKey,
    RunningState,
    Service,
    Variant,
    gpu_indexes,
)

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
SPEEDS = {"big": 1.0, "mid": 1.5, "old": 2.6}  # how long exec takes
PRICES = {"big": 3.0, "mid": 1.4, "old": 0.6}
TENANTS = ("shop", "lab")
PRICINGS: tuple[Literal["gpu", "node"], ...] = ("gpu", "gpu", "node")
PURCHASES: tuple[Literal["owned", "reserved", "onDemand", "spot"], ...] = ("owned", "reserved", "onDemand", "spot")


def random_problem(seed: int) -> Problem:
    """One to five services on one to six GPUs, of which some nodes miss a few; a third of the features at a time."""
    r = Random(seed)
    kinds = r.sample(list(SPEEDS), r.randint(1, 3))
    types = {name: _gpu_type(r, name) for name in kinds}
    nodes = {f"n{number}": _node(r, f"n{number}", r.choice(kinds)) for number in range(r.randint(1, 4))}
    models: dict[str, tuple[Variant, ...]] = {}
    profiles: dict[ProfileKey, Profile] = {}
    services: dict[str, Service] = {}
    for number in range(r.randint(1, 4)):
        name = f"m{number}"
        variants = [Variant("v", 0.8, r.choice([None, None, "serve"]))]
        if r.random() < 0.4:
            variants.append(Variant("w", 0.7))
        models[name] = tuple(variants)
        base_ms = r.uniform(2, 20)
        for variant in variants:
            for kind in kinds:
                if r.random() < 0.9:
                    faster = 1.0 if variant.name == "v" else 0.6
                    profile = _profile(r, (name, variant.name, kind), base_ms * SPEEDS[kind] * faster)
                    profiles[profile.key] = profile
        for _ in range(1 if r.random() < 0.8 else 2):
            service = _service(r, len(services), name, [variant.name for variant in variants], base_ms, kinds)
            services[service.name] = service
    by_node = Random(f"{seed} by node")  # draws of its own leave the others what they were
    nodes = {name: replace(node, pricing=by_node.choice(PRICINGS)) for name, node in nodes.items()}
    by_profile = Random(f"{seed} bandwidth")
    if by_profile.random() < 0.5:
        profiles = {
            key: replace(profile, demand=_on_both(by_profile, profile.demand)) for key, profile in profiles.items()
        }
    problem = Problem(types, nodes, models, profiles, services, policy=_policy(r))
    if r.random() < 0.3:
        limit = Limit(r.choice([None, r.uniform(0.1, 3)]), r.choice([None, r.uniform(0.1, 5)]))
        problem = _with(problem, limits={r.choice(TENANTS): limit})
    if r.random() < 0.25:
        idle = sum(types[node.gpu_type].idle_w * node.gpu_count for node in nodes.values())
        budget = idle + r.uniform(0, 250) * sum(node.gpu_count for node in nodes.values())
        problem = _with(problem, policy=_policy(r, power_budget_w=budget))
    if r.random() < 0.3:
        jobs = {f"lab/j{number}": _job(r, f"lab/j{number}", kinds) for number in range(r.randint(1, 3))}
        problem = _with(problem, jobs=jobs)
    if r.random() < 0.25:
        problem = _with(problem, state=_state(r, problem))
    return problem


def _with(problem: Problem, **fields: object) -> Problem:
    known = {name: getattr(problem, name) for name in problem.__dataclass_fields__}
    return Problem(**{**known, **fields})


def _policy(r: Random, power_budget_w: float | None = None) -> Policy:
    return Policy(
        pricing="share" if r.random() < 0.35 else "gpu",
        utilization=r.choice([0.8, 0.8, 0.5, 0.95]),
        exec_margin=r.choice([0.05, 0.05, 0.0, 0.2]),
        same_model_per_gpu=r.choice([1, 1, 2]),
        clients_per_gpu=r.choice([48, 48, 48, 2, 1]),
        jobs_per_gpu=r.choice([3, 1]),
        share_pressure=r.choice([0.5, 0.0, 1.0]),
        energy_price_per_kwh=r.choice([0.0, 0.0, 0.3, 2.0]),
        power_budget_w=power_budget_w,
    )


def _gpu_type(r: Random, name: str) -> GpuType:
    clocks = r.choice([(1000.0,), (600.0, 1000.0), (500.0, 800.0, 1100.0)])
    return GpuType(
        name, r.choice([8.0, 16.0, 40.0]), r.uniform(10, 50), r.choice([120.0, 250.0, 400.0, 1000.0]), clocks
    )


def _node(r: Random, name: str, kind: str) -> Node:
    count = r.randint(1, 3)
    gpus = gpu_indexes(count) if name in ("n0", "n2") else tuple(2 * index + 1 for index in range(count))
    return Node(
        name, kind, gpus, r.choice([2.0, 8.0, 64.0, 64.0, 64.0]), r.choice([6.0, 64.0, 64.0, 256.0]),
        PRICES[kind] * r.choice([1.0, 1.0, 0.5, 1.3]), r.choice(PURCHASES), r.choice(["eu", "us"]),
        None if r.random() < 0.8 else frozenset({r.choice(["serve", "other"])}),
    )  # fmt: skip


def _demand(r: Random, low: int) -> Demand:
    pressure: Curve = ((low, r.uniform(0, 0.3)), (100, r.uniform(0.3, 1))) if r.random() < 0.7 else ((low, 0.3),)
    power: Curve = ((low, r.uniform(5, 40)), (100, r.uniform(40, 200)))
    return Demand(
        r.choice([0.0, 1.0, 2.5]), r.choice([0.0, 2.0, 5.0]), pressure, r.choice([0.0, 0.2, 0.6]), power,
        r.uniform(0.3, 1), r.uniform(1, 3),
    )  # fmt: skip


def _on_both(r: Random, demand: Demand) -> Demand:
    """Returns it with a part of its pressure on bandwidth, and a sensitivity to that."""
    share = r.random()
    pressure = tuple((sm, value * complex(1 - share, share)) for sm, value in demand.pressure)
    return replace(demand, pressure=pressure, sensitivity=complex(demand.sensitivity, r.choice([0.0, 0.3, 0.7])))


def _profile(r: Random, key: tuple[str, str, str], base_ms: float) -> Profile:
    low = r.choice([5, 10, 30])
    top = r.choice([100, 100, 60])
    curves = {}
    for batch in r.choice([(1,), (1, 4), (1, 2, 8, 32), (4, 16)]):
        time = base_ms * (0.5 + 0.5 * batch)
        knee = (low + top) // 2
        curves[batch] = ((low, time * (0.8 + 12 / low)), (knee, time * (0.85 + 9 / knee)), (top, time))
    return Profile(*key, curves, {batch: 1.0 + 0.2 * batch + r.uniform(0, 3) for batch in curves}, _demand(r, low))


def _service(r: Random, number: int, model: str, variants: list[str], base_ms: float, kinds: list[str]) -> Service:
    tenant = r.choice(TENANTS)
    types: tuple[str, ...] | None = None
    if r.random() < 0.3:
        types = tuple(r.sample(kinds, r.randint(1, len(kinds))))
    return Service(
        name=f"{tenant}/s{number}",
        tenant=tenant,
        model=model,
        variants=tuple(variants if r.random() < 0.5 else variants[:1]) if r.random() < 0.96 else (),
        slo_ms=base_ms * (r.uniform(0.5, 3) if r.random() < 0.1 else r.uniform(4, 12) * r.choice([1, 1, 4])),
        percentile=r.choice([90.0, 95.0, 98.0, 99.0, 99.9, 50.0, 97.3]),
        rate_per_second=10 ** r.uniform(-0.5, 1.6) * 20 / base_ms,
        gpu_types=types,
        min_instances=r.choice([1, 1, 1, 2, 3]),
        is_dedicated=r.random() < 0.15,
        priority=r.choice([100, 100, 1, 1000]),
    )


def _job(r: Random, name: str, kinds: list[str]) -> Job:
    pace = r.uniform(0.5, 5)
    profiles = {
        kind: JobProfile(((10, pace / SPEEDS[kind]), (60, 2 * pace / SPEEDS[kind])), r.uniform(1, 9), _demand(r, 10))
        for kind in r.sample(kinds, r.randint(1, len(kinds)))
    }
    return Job(
        name, "lab", r.choice(["training", "offline"]), r.uniform(500, 30_000), profiles,
        r.choice([None, NOON + timedelta(hours=r.uniform(0.5, 5))]), r.choice([None, r.uniform(0.3, 4)]),
        r.random() < 0.7, r.choice([1, 100]),
    )  # fmt: skip


def _state(r: Random, problem: Problem) -> RunningState:
    """Draws what runs, valid or not: a plan pays the price of moves for it and nothing else."""
    running, jobs = [], []
    for number, service in enumerate(problem.services.values()):
        node = r.choice(list(problem.nodes.values()))
        keys = [key for key in problem.profiles if key[0] == service.model and key[2] == node.gpu_type]
        if not keys or r.random() < 0.3:
            continue
        profile = problem.profiles[r.choice(keys)]
        batch = r.choice(list(profile.latency_ms))
        running.append(
            Instance(
                f"i{number}", service.name, node.name, r.choice(node.gpus), profile.variant, batch, 0.0,
                profile.latency_ms[batch][0][0], profile.memory_gib[batch],
                problem.gpu_types[node.gpu_type].top_clock_mhz, service.rate_per_second,
            )
        )  # fmt: skip
    cores = {node.name: node.cpu_cores for node in problem.nodes.values()}
    host = {node.name: node.host_memory_gib for node in problem.nodes.values()}
    taken: set[tuple[str, int]] = set()
    for job in problem.jobs.values():
        at = [node for node in problem.nodes.values() if node.gpu_type in job.profiles]
        if not at or r.random() < 0.6 or problem.policy.power_budget_w is not None:
            continue
        node = r.choice(at)
        place, kind, needs = (
            (node.name, r.choice(node.gpus)),
            node.gpu_type,
            job.profiles[node.gpu_type],
        )
        cores[node.name] -= needs.demand.cpu_cores
        host[node.name] -= needs.demand.host_memory_gib
        watts = problem.gpu_types[kind].idle_w + needs.demand.power_w[-1][1]
        if place in taken or min(cores[node.name], host[node.name]) < 0 or watts > problem.gpu_types[kind].max_w:
            continue  # a job that must stay and cannot leaves no valid plan
        taken.add(place)
        if needs.memory_gib <= problem.gpu_types[kind].memory_gib:
            jobs.append(PlacedJob(job.name, *place, 10, needs.memory_gib))
    return RunningState(NOON, tuple(running), tuple(jobs))
