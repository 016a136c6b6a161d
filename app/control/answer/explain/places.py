"""Explains a node and a tenant by a recorded plan: what runs there, what room is left, what limits it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict

from app.control.answer.explain.wording import clock, count, rate
from app.manifests.model import Fields
from app.store.fleet.cordons import CordonWire
from solvers.planning.plan_fields import held_gpus
from solvers.planning.wire import (
    PlanInstanceWire,
    PlanJobWire,
    PlanLinesWire,
    PlanUnplacedWire,
    PlanUnservedWire,
    ReleasableNodeWire,
)

HELPS = "least change that helps"
ALARMS = ("InventoryMismatch", "Degraded")  # conditions that should not hold


class NodeGpuUseWire(TypedDict):
    """What the plan runs on a GPU, and what is free."""

    gpu: int
    smPercent: float
    memoryGib: float
    freeSmPercent: float
    freeMemoryGib: float
    services: list[str]
    jobs: list[str]


class NodeExplanationWire(TypedDict):
    """What the plan runs on a node, and what keeps plans off it."""

    node: str
    gpuType: str
    gpus: list[NodeGpuUseWire]
    releasable: bool
    limits: list[str]
    sentences: list[str]


class TenantExplanationWire(TypedDict):
    """What a tenant has in the plan, what it lacks, and what limits it."""

    tenant: str
    services: list[str]
    jobs: list[str]
    instances: int
    usedGpus: float
    unserved: list[PlanUnservedWire]
    unplaced: list[PlanUnplacedWire]
    limits: list[str]
    sentences: list[str]


def explain_node(
    name: str,
    spec: Fields,
    plan: PlanLinesWire,
    releasable: Sequence[ReleasableNodeWire],
    cordons: Sequence[CordonWire],
    conditions: Sequence[Fields],
    memory_gib: float,
) -> NodeExplanationWire:
    """Returns what the plan runs on each GPU of a node, and what keeps plans off it; `memory_gib` is that of a GPU."""
    instances = [instance for instance in plan["instances"] if instance["node"] == name]
    jobs = [job for job in plan["jobs"] if job["node"] == name]
    gpus = [_gpu(index, instances, jobs, memory_gib) for index in range(spec["gpus"])]
    saves = next((node["perHour"] for node in releasable if node["node"] == name), None)
    limits = [*(_cordon(cordon) for cordon in cordons), *_faults(conditions)]
    head = f"{name} has {count(spec['gpus'], 'GPU')} of {spec['gpuType']}"
    sentences = [
        f"{head}; the plan puts {count(len(instances), 'instance')} and {count(len(jobs), 'job')} there"
        if instances or jobs
        else f"{head}; the plan puts nothing there",
        *_describe_gpus(gpus),
    ]
    if saves is not None:
        sentences.append(f"nothing needs it: to give it back saves {saves:.4g} an hour")
    sentences += limits or ["nothing keeps plans off it"]
    if instances:
        sentences.append(f"why an instance is here: gpuwright explain instance {instances[0]['id']}")
    return {
        "node": name,
        "gpuType": spec["gpuType"],
        "gpus": gpus,
        "releasable": saves is not None,
        "limits": limits,
        "sentences": sentences,
    }


def _gpu(
    index: int, instances: Sequence[PlanInstanceWire], jobs: Sequence[PlanJobWire], memory_gib: float
) -> NodeGpuUseWire:
    served = [instance for instance in instances if index in held_gpus(instance)]
    worked = [job for job in jobs if index in held_gpus(job)]
    here = (*served, *worked)
    sm_percent, used_gib = sum(line["smPercent"] for line in here), sum(line["memoryGib"] for line in here)
    return {
        "gpu": index,
        "smPercent": sm_percent,
        "memoryGib": used_gib,
        "freeSmPercent": max(0.0, 100.0 - sm_percent),
        "freeMemoryGib": max(0.0, memory_gib - used_gib),
        "services": sorted({instance["service"] for instance in served}),
        "jobs": sorted({job["job"] for job in worked}),
    }


def _describe_gpus(gpus: Sequence[NodeGpuUseWire]) -> Iterator[str]:
    for gpu in gpus:
        runs = ", ".join((*gpu["services"], *gpu["jobs"]))
        if runs:
            yield (
                f"GPU {gpu['gpu']}: {gpu['smPercent']:.3g} % of the SMs and {gpu['memoryGib']:.3g} GiB for {runs}; "
                f"{gpu['freeSmPercent']:.3g} % and {gpu['freeMemoryGib']:.3g} GiB are free"
            )
    empty = [str(gpu["gpu"]) for gpu in gpus if not (gpu["services"] or gpu["jobs"])]
    if empty:
        yield f"empty: {'GPU' if len(empty) == 1 else 'GPUs'} {', '.join(empty)}"


def _cordon(cordon: CordonWire) -> str:
    where = "it" if cordon["gpu"] is None else f"GPU {cordon['gpu']}"
    does = {
        "cordon": f"plans place nothing new on {where}",
        "drain": f"plans move everything off {where}",
        "reclaim": "the cloud takes it back, and plans move everything off it",
        "cluster": "who runs its cluster drains it, and plans move everything off it",
        "profile": f"{where} is kept empty for measurements",
    }.get(cordon["mode"], f"plans keep off {where}")
    until = f" by {clock(str(cordon['deadline']))}" if cordon["deadline"] else ""
    message = f": {cordon['message']}" if cordon["message"] else ""
    return f"{does}{until}, asked by {cordon['askedBy']}{message}"


def _faults(conditions: Sequence[Fields]) -> list[str]:
    """Returns the messages of the conditions that are not as they should be."""
    return [
        f"{known['type']}: {known['message']}" for known in conditions
        if (known["status"] == "True" if known["type"] in ALARMS else known["status"] != "True")
    ]  # fmt: skip


def explain_tenant(
    name: str,
    spec: Fields | None,
    declared: Mapping[str, Sequence[str]],
    plan: PlanLinesWire,
    conditions: Sequence[Fields],
) -> TenantExplanationWire:
    """Returns what a tenant has in the plan, what it lacks and why, and what limits it.

    `declared` has the names of its services and jobs; `plan` its own part of the plan.
    """
    instances, jobs = plan["instances"], plan["jobs"]
    used = sum(line["smPercent"] * len(held_gpus(line)) for line in (*instances, *jobs)) / 100
    limits = [*_terms(name, spec), *_faults(conditions)]
    sentences = [
        f"{name} has {count(len(declared['services']), 'service')} and {count(len(declared['jobs']), 'job')}; the plan "
        f"gives it {count(len(instances), 'instance')} and runs {count(len(jobs), 'job')} of it, on the SMs of "
        f"{used:.3g} GPUs",
        *(f"{line['service']} lacks {rate(line['ratePerSecond'])} a second{_why(line)}" for line in plan["unserved"]),
        *(f"{line['job']} waits{_why(line)}" for line in plan["unplaced"]),
    ]
    if not (plan["unserved"] or plan["unplaced"]):
        sentences.append("the plan leaves none of it out")
    return {
        "tenant": name,
        "services": list(declared["services"]),
        "jobs": list(declared["jobs"]),
        "instances": len(instances),
        "usedGpus": used,
        "unserved": plan["unserved"],
        "unplaced": plan["unplaced"],
        "limits": limits,
        "sentences": [*sentences, *limits],
    }


def _why(line: PlanUnservedWire | PlanUnplacedWire) -> str:
    reason = f": {line['reason']}" if line["reason"] else ""
    return f"{reason}; {HELPS}: {line['relaxation']}" if line["relaxation"] else reason


def _terms(name: str, spec: Fields | None) -> Iterator[str]:
    """Yields what was declared of the tenant's share, and who pays."""
    limit, guarantee = ((spec or {}).get(field) or {} for field in ("limit", "guarantee"))
    if limit.get("gpus") is not None:
        yield f"its limit is {limit['gpus']:g} GPUs"
    if guarantee.get("gpus") is not None:
        yield f"it is guaranteed {guarantee['gpus']:g} GPUs"
    if limit.get("gpus") is None and guarantee.get("gpus") is None:
        yield f"{name} has neither limit nor guarantee of GPUs: it shares with others what the fleet has"
