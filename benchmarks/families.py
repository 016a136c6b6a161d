"""Draws families of problems from a seed: the others change a single thing of A.

A    7 GPU types, nodes of 4; 18 models; Zipf 0.9 rates; SLO log-uniform 2.2..12 x the median type's time at batch 1 on
     the whole GPU; percentile from 90, 95, 98, 99, 99.9; pressure by SM%; batches 1..32; load 0.8 (benchmarks/load.py)
B    a model has the same pressure at every SM%: that of A at 50 %
C    minInstances 2 on half, a tenth dedicated, two variants (half of the services take fp16 alone)
D    share pricing
E    watts and clocks, and a power budget of 80 % of what the resource LP's optimum draws
F    jobs besides, a tenth as many as services
G30  load 0.3
G95  load 0.95
L    language models on whole GPUs besides (benchmarks/language_models.py)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from benchmarks import hardware, language_models, models
from benchmarks.jobs import jobs
from benchmarks.load import scale_to_load
from benchmarks.models import FULL, SMALL, ModelFamily, round_figure
from solvers.planning.problem import Node, Policy, Problem, Service, gpu_indexes

FAMILIES = ("A", "B", "C", "D", "E", "F", "G30", "G95")
LANGUAGE = "L"  # it counts other things than the families above
GPUS_PER_NODE = 4
CORES_PER_NODE = 64.0
HOST_GIB_PER_NODE = 512.0
PERCENTILES = (90.0, 95.0, 98.0, 99.0, 99.9)
ZIPF_EXPONENT = 0.9
SLO_RATIOS = (2.2, 12.0)
LOAD_SHARE = 0.8
LOAD_SHARES: Mapping[str, float] = {"G30": 0.3, "G95": 0.95}
POWER_BUDGET_SHARE = 0.8
TENANT = "bench"


def family(name: str, gpus: int, services: int, seed: int, load: float | None = None) -> Problem:
    """Returns the problem of this family, size and seed, at the family's load or another; always the same."""
    if name == LANGUAGE:
        large, models_count = language_models.sizes(gpus, services)
        rest = family("A", max(1, gpus - large), max(1, services - models_count), seed, load)
        return language_models.add_language_models(rest, large, models_count, seed)
    if name not in FAMILIES:
        raise ValueError(f"there is no family {name}; there are {', '.join((*FAMILIES, LANGUAGE))}")
    if gpus < 1 or services < 1:
        raise ValueError(f"{gpus} GPUs and {services} services; at least 1 of each is needed")
    rng = np.random.default_rng([seed, 1])
    families = models.draw_models(rng)
    variants = (FULL, SMALL) if name == "C" else (FULL,)
    made = models.profiles(families, variants, scalar_pressure=name == "B", with_power=name == "E")
    problem = Problem(
        gpu_types={entry.gpu_type.name: entry.gpu_type for entry in hardware.FLEET},
        nodes=_nodes(gpus),
        models={model.name: variants for model in families},
        profiles={profile.key: profile for profile in made},
        services=_services(rng, families, services),
        policy=Policy(pricing="share" if name == "D" else "gpu"),
    )
    if name == "C":
        problem = replace(problem, services=_demanding(np.random.default_rng([seed, 2]), problem.services))
    found = scale_to_load(problem, LOAD_SHARES.get(name, LOAD_SHARE) if load is None else load)
    problem = problem.change_rates(
        {service.name: round_figure(service.rate_per_second * found.scale) for service in problem.services.values()}
    )
    if name == "E":
        idle = sum(problem.gpu_types[node.gpu_type].idle_w * node.gpu_count for node in problem.nodes.values())
        budget = round_figure(POWER_BUDGET_SHARE * (idle + found.watts))
        problem = replace(problem, policy=replace(problem.policy, power_budget_w=budget))
    if name == "F":
        problem = replace(problem, jobs=jobs(np.random.default_rng([seed, 3]), max(1, round(services / 10))))
    return problem


def multiply_gpus(problem: Problem, factor: int) -> Problem:
    """Returns the problem on a fleet with so many times as many GPUs of every type."""
    return replace(
        problem,
        nodes={name: replace(node, gpus=gpu_indexes(node.gpu_count * factor)) for name, node in problem.nodes.items()},
    )


def _nodes(gpus: int) -> dict[str, Node]:
    """Returns nodes of four GPUs; the last of a type holds the rest."""
    nodes: dict[str, Node] = {}
    counts = hardware.counts(gpus)
    for entry in hardware.FLEET:
        name = entry.gpu_type.name
        for number, first in enumerate(range(0, counts[name], GPUS_PER_NODE)):
            node = Node(
                name=f"{name}-{number:04d}",
                gpu_type=name,
                gpus=gpu_indexes(min(GPUS_PER_NODE, counts[name] - first)),
                cpu_cores=CORES_PER_NODE,
                host_memory_gib=HOST_GIB_PER_NODE,
                price_per_hour=entry.price_per_hour,
            )
            nodes[node.name] = node
    return nodes


def _services(rng: np.random.Generator, families: tuple[ModelFamily, ...], count: int) -> dict[str, Service]:
    """Draws model, popularity and SLO of each service; rates are in parts until the load is set."""
    popularity = np.arange(1, count + 1, dtype=float) ** -ZIPF_EXPONENT
    rates = rng.permutation(popularity / popularity.sum())
    picked = rng.integers(len(families), size=count)
    ratios = np.exp(rng.uniform(np.log(SLO_RATIOS[0]), np.log(SLO_RATIOS[1]), size=count))
    percentiles = rng.choice(PERCENTILES, size=count)
    median_ms = [
        float(np.median([models.exec_ms(model, entry, 1, 100) for entry in hardware.FLEET])) for model in families
    ]
    services: dict[str, Service] = {}
    for number in range(count):
        chosen = int(picked[number])
        service = Service(
            name=f"{TENANT}/service-{number:05d}",
            tenant=TENANT,
            model=families[chosen].name,
            variants=(FULL.name,),
            slo_ms=round_figure(median_ms[chosen] * float(ratios[number])),
            percentile=float(percentiles[number]),
            rate_per_second=float(rates[number]) * 1000,
        )
        services[service.name] = service
    return services


def _demanding(rng: np.random.Generator, services: Mapping[str, Service]) -> dict[str, Service]:
    """Asks for two instances for half of the services, an own GPU for a tenth, and admits both variants for half."""
    count = len(services)
    twice, alone, either = (rng.permutation(count) for _ in range(3))
    return {
        service.name: replace(
            service,
            min_instances=2 if twice[number] < count / 2 else 1,
            is_dedicated=bool(alone[number] < count / 10),
            variants=(FULL.name, SMALL.name) if either[number] < count / 2 else (FULL.name,),
        )
        for number, service in enumerate(services.values())
    }
