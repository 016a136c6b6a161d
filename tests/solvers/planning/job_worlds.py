"""Small fleets with a valid plan of services, and jobs to place next to them, drawn by Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

from hypothesis import strategies as st

from solvers.latency import latency_at, max_rate, timeout_for
from solvers.planning.jobs import JobPlan
from solvers.planning.judge import JudgedPlan, Keeps, Resident, Verdict
from solvers.planning.plan import Plan, Unplaced
from solvers.planning.problem import (
    Curve,
    Demand,
    GpuType,
    Instance,
    Job,
    JobProfile,
    Node,
    PlacedJob,
    Policy,
    Problem,
    Profile,
    RunningState,
    Service,
    Variant,
    gpu_indexes,
)

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def keeps(problem: Problem, residents: Sequence[Resident]) -> list[bool]:
    """Returns which instances keep their SLO and their utilization by the product's functions."""
    found = []
    for resident in residents:
        instance, service = resident.instance, resident.service
        assert resident.exec_ms and service
        judged = resident.exec_ms * (1 + problem.policy.exec_margin)
        rate, load = instance.rate_per_second, instance.rate_per_second * resident.exec_ms / instance.batch / 1000
        reached = latency_at(instance.batch, judged, rate, service.percentile, instance.batch_timeout_ms)
        found.append(reached <= service.slo_ms * (1 + 1e-9) and load <= problem.policy.utilization * (1 + 1e-9))
    return found


def could_keep(problem: Problem, residents: Sequence[Resident]) -> list[bool]:
    """Returns which keep their SLO under some timeout."""
    margin, utilization = 1 + problem.policy.exec_margin, problem.policy.utilization * (1 + 1e-9)
    found = []
    for resident in residents:
        if resident.service:
            instance, service, exec_ms = resident.instance, resident.service, resident.exec_ms or 0
            rate, load = instance.rate_per_second, instance.rate_per_second * exec_ms / instance.batch / 1000
            shape = (instance.batch, exec_ms * margin, service.slo_ms, service.percentile)
            found.append(load <= utilization and timeout_for(*shape, rate) is not None)
    return found


def judged(
    problem: Problem, instances: Sequence[Instance], found: JobPlan | None, keeps: Keeps = keeps
) -> tuple[Verdict, float]:
    """Returns the judge's verdict on instances and jobs, and the sum of seconds a unit."""
    plan = Plan(tuple(instances))
    if found:
        plan = Plan(found.instances, found.jobs, unplaced=found.unplaced)
    else:  # without jobs, those with a deadline stand in unplaced
        plan = replace(plan, unplaced=tuple(Unplaced(name) for name, job in problem.jobs.items() if job.deadline))
    judged_plan = JudgedPlan(problem, plan, keeps)
    seconds = sum(1 / line.units_per_second for line in judged_plan.job_residents if line.units_per_second)
    return judged_plan.verdict(), seconds


@st.composite
def worlds(
    draw: st.DrawFn, most_gpus: int = 3, widest: int = 2, plain: bool = False
) -> tuple[Problem, tuple[Instance, ...]]:
    """Jobs take 20..20 + widest SM%, so that all splits can be tried. `plain`: no budget of watts, no priced shares."""
    types = {
        "big": GpuType("big", 16, 40, 300, (600, 1200)),
        "old": GpuType("old", 8, 20, draw(st.sampled_from([70.0, 250.0])), (1000,)),
    }
    policy = Policy(
        pricing="share" if not plain and draw(st.integers(0, 2)) == 2 else "gpu",
        jobs_per_gpu=draw(st.integers(1, 3)),
        clients_per_gpu=draw(st.sampled_from([2, 48])),
        energy_price_per_kwh=draw(st.sampled_from([0.0, 0.0, 0.3])),
    )
    nodes: dict[str, Node] = {}
    gpus = 0
    while gpus < most_gpus and (not nodes or draw(st.booleans())):
        name = f"n{len(nodes)}"
        count = draw(st.integers(1, min(2, most_gpus - gpus)))
        gpus += count
        nodes[name] = Node(
            name, draw(st.sampled_from(["big", "old"])), gpu_indexes(count), draw(st.sampled_from([3.0, 16.0])), 64,
            draw(st.sampled_from([0.5, 1.0, 2.0])), draw(st.sampled_from(["onDemand", "onDemand", "owned"])),
            pricing=draw(st.sampled_from(["gpu", "node"])),
        )  # fmt: skip
    problem = Problem(types, nodes, {}, {}, {}, policy=policy)
    instances: list[Instance] = []
    for node in nodes.values():
        for gpu in node.gpus:
            problem, instances = _served(draw, problem, instances, node, gpu)
    jobs = {f"lab/j{place}": _job(draw, f"lab/j{place}", widest) for place in range(draw(st.integers(1, 3)))}
    state = RunningState(NOON) if draw(st.booleans()) else None
    if not plain and draw(st.integers(0, 3)) == 3:
        idle = sum(types[node.gpu_type].idle_w * node.gpu_count for node in nodes.values())
        busy = sum(profile.demand.power_w[0][1] for profile in problem.profiles.values())
        policy = replace(policy, power_budget_w=idle + busy + draw(st.sampled_from([0.0, 25.0, 45.0, 200.0])))
        problem = replace(problem, policy=policy)
    return replace(problem, jobs=jobs, state=state), tuple(instances)


def _served(
    draw: st.DrawFn, problem: Problem, instances: list[Instance], node: Node, gpu: int
) -> tuple[Problem, list[Instance]]:
    """Draws up to two more instances for this GPU, each a service of its own, at a part of what it could carry."""
    gpu_type = problem.gpu_types[node.gpu_type]
    clock = draw(st.sampled_from(gpu_type.clocks_mhz))
    shares = draw(st.lists(st.sampled_from([10, 30, 45]), max_size=2))
    models, profiles, services = dict(problem.models), dict(problem.profiles), dict(problem.services)
    pressures = [complex(draw(st.sampled_from([0.0, 0.4])), draw(st.sampled_from([0.0, 0.3]))) for _ in shares]
    left = 1 - sum(shares) / 100 if problem.policy.pricing == "share" else 0.0
    for share, pressure in zip(shares, pressures, strict=True):
        model = f"m{len(models)}"
        feels = complex(draw(st.sampled_from([0.0, 0.2, 0.5])), draw(st.sampled_from([0.0, 0.4])))
        demand = Demand(0.5, 1, ((100, pressure),), feels, ((100, draw(st.sampled_from([0.0, 20.0]))),), 0.7, 2.0)
        curve: Curve = ((10, 20.0), (45, draw(st.floats(5, 19))))
        profile = Profile(model, "v", node.gpu_type, {4: curve}, {4: 1.5}, demand)
        exec_ms = curve[0][1] + (curve[1][1] - curve[0][1]) * (share - 10) / 35
        beside = sum(pressures) - pressure
        exec_ms *= 1 + feels.real * beside.real + feels.imag * beside.imag
        exec_ms *= 1 + max(feels.real, feels.imag) * problem.policy.share_pressure * left
        exec_ms *= (gpu_type.top_clock_mhz / clock) ** 0.7
        slo_ms = exec_ms * draw(st.floats(2.3, 6))
        most, timeout = max_rate(4, exec_ms * 1.05, slo_ms, 98)
        rate = min(most, 0.8 * 4 / exec_ms * 1000) * draw(st.sampled_from([0.3, 0.7, 0.97]))
        alone = draw(st.sampled_from([False, False, False, True])) and len(shares) == 1
        service = Service(f"shop/{model}", "shop", model, ("v",), slo_ms, 98, rate, is_dedicated=alone)
        models[model], profiles[profile.key], services[service.name] = (Variant("v", 0.8),), profile, service
        instances = [*instances, Instance(f"i{len(instances)}", service.name, node.name, gpu, "v", 4, timeout, share,
                                          1.5, clock, rate, exec_ms)]  # fmt: skip
    return replace(problem, models=models, profiles=profiles, services=services), instances


def _job(draw: st.DrawFn, name: str, widest: int) -> Job:
    pace = draw(st.floats(0.5, 5))
    pressure = (
        (20, complex(draw(st.sampled_from([0.0, 0.05, 0.3])), draw(st.sampled_from([0.0, 0.2])))),
        (22, complex(draw(st.sampled_from([0.3, 0.6, 0.9])), draw(st.sampled_from([0.0, 0.4])))),
    )
    demand = Demand(
        draw(st.sampled_from([0.0, 1.5])), 2, pressure,
        complex(draw(st.sampled_from([0.0, 0.4])), draw(st.sampled_from([0.0, 0.3]))),
        ((20, 20.0), (22, 35.0)), 0.5, 2.0,
    )  # fmt: skip
    curve: Curve = ((20, pace), (20 + widest, pace * draw(st.floats(1, 2))))
    types = draw(st.sampled_from([("big",), ("big", "old"), ("big", "old")]))
    deadline = draw(st.sampled_from([None, None, NOON + timedelta(hours=1)]))
    return Job(
        name, "lab", "training", draw(st.sampled_from([1000.0, 8000.0])),
        {gpu_type: JobProfile(curve, draw(st.sampled_from([2.0, 7.0])), demand) for gpu_type in types},
        deadline, draw(st.sampled_from([None, None, 0.7, 1.5])), priority=draw(st.sampled_from([1, 100])),
    )  # fmt: skip


def brute_force(problem: Problem, instances: Sequence[Instance]) -> tuple[float, float]:
    """Finds, by trying all placements, the least jobCost and then seconds that cost services nothing."""
    without = judged(problem, instances, None)[0]
    places = [(node.name, gpu) for node in problem.nodes.values() for gpu in node.gpus]
    options: list[list[PlacedJob | None]] = []
    for name, job in problem.jobs.items():
        mine: list[PlacedJob | None] = [None]
        for node, gpu in places:
            profile = job.profiles.get(problem.nodes[node].gpu_type)
            if profile:
                low, high = profile.units_per_second[0][0], profile.units_per_second[-1][0]
                mine += [PlacedJob(name, node, gpu, sm, profile.memory_gib) for sm in range(low, high + 1)]
        options.append(mine)
    best = (float("inf"), 0, float("inf"))
    for chosen in product(*options):
        placed = tuple(job for job in chosen if job)
        out = {name for name, job in zip(problem.jobs, chosen, strict=True) if job is None}
        unplaced = tuple(Unplaced(name) for name in out if problem.jobs[name].deadline)
        verdict, seconds = judged(problem, (), JobPlan(placed, unplaced, tuple(instances), 0.0, ""), could_keep)
        if verdict.violations or verdict.cost.resource > without.cost.resource * (1 + 1e-12):
            continue
        # At equal cost a job that runs is better than one that waits.
        best = min(best, (round(verdict.cost.job, 9), len(out), seconds))
    return best[0], best[2]
