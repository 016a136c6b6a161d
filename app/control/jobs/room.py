"""Finds roughly how much GPUs have free, to tell whether what found no place might find one now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from app.control.domain.desired import Desired
from app.control.domain.snapshot import DeclaredObject, NodeStatus
from app.control.domain.specs import gpu_count, gpu_type_of, linked_gpus, memory_gib
from app.control.jobs.state import JobWork

WHOLE_PERCENT = 100


class OccupiedFleet(Protocol):
    """The nodes, as declared and as they are, and what the plan in force has on them."""

    @property
    def declared(self) -> tuple[DeclaredObject, ...]: ...
    @property
    def nodes(self) -> Mapping[str, NodeStatus]: ...
    @property
    def in_force(self) -> Desired: ...


@dataclass(frozen=True, slots=True)
class UnusedGpu:
    """The room that is free on a GPU."""

    node: str
    sm_percent: int
    memory_gib: float
    full_models: frozenset[str] = frozenset()  # of which no further instance may share it
    link: int = 0  # the number of the group of linked GPUs of the node that it is in


def free_capacity(fleet: OccupiedFleet) -> dict[str, list[UnusedGpu]]:
    """Returns, by GPU type, what is free on each GPU that may be planned on."""
    types = {item.name: item.spec for item in fleet.declared if item.kind == "GpuType"}
    found: dict[str, list[UnusedGpu]] = {}
    for item in fleet.declared:
        facts = fleet.nodes.get(item.name) if item.kind == "Node" else None
        if facts is None or facts.state != "reporting":
            continue
        kind, out = gpu_type_of(item.spec), facts.closed_gpus
        whole_gib, linked = memory_gib(types[kind]), linked_gpus(item.spec, types[kind])
        held: dict[int, tuple[float, float]] = {}
        models: dict[int, Counter[str]] = {}
        wanted = fleet.in_force.get(item.name)
        for instance in wanted.instances if wanted else ():
            for gpu in instance.all_gpus:
                sm, memory = held.get(gpu, (0.0, 0.0))
                held[gpu] = (sm + instance.sm_percent, memory + instance.memory_gib)
                if instance.model:
                    models.setdefault(gpu, Counter())[instance.model] += 1
        most = wanted.same_model_per_gpu if wanted else 1
        for gpu in range(gpu_count(item.spec)):
            if gpu not in out:
                sm, memory = held.get(gpu, (0.0, 0.0))
                full = frozenset(name for name, count in models.get(gpu, {}).items() if count >= most)
                link = gpu // linked if linked else 0
                unused = UnusedGpu(item.name, int(100 - sm), whole_gib - memory, full, link)
                found.setdefault(kind, []).append(unused)
    return found


def most_linked(gpus: Iterable[UnusedGpu]) -> int:
    """Returns the largest number of these GPUs that are wholly free and linked with each other."""
    whole = Counter((gpu.node, gpu.link) for gpu in gpus if gpu.sm_percent >= WHOLE_PERCENT)
    return max(whole.values(), default=0)


def widest_free(room: Mapping[str, list[UnusedGpu]], work: JobWork) -> dict[str, int]:
    """Returns, by GPU type that suits the job, the most free SM% on a GPU with enough free memory, or 0.

    For a job on several GPUs: of all GPUs of a node that are wholly free and linked with each other.
    """
    found = {}
    for kind, needed in sorted(work.memory_gib.items()):
        free = [gpu for gpu in room.get(kind, ()) if gpu.memory_gib >= needed]
        if work.gpus > 1:
            found[kind] = WHOLE_PERCENT * most_linked(free)
        else:
            found[kind] = max((gpu.sm_percent for gpu in free), default=0)
    return found
