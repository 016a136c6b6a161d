"""What GPUs have to spare, coarsely: whether a job that found no place might find one now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.control.domain.snapshot import Snapshot
from app.control.jobs.state import JobWork


def free_capacity(snapshot: Snapshot) -> dict[str, list[tuple[int, float]]]:
    """By GPU type, SM% and memory that no instance holds on each GPU that may be planned on."""
    types: dict[str, Any] = {one.name: one.spec for one in snapshot.declared if one.kind == "GpuType"}
    found: dict[str, list[tuple[int, float]]] = {}
    for one in snapshot.declared:
        facts = snapshot.nodes.get(one.name) if one.kind == "Node" else None
        if facts is None or facts.state != "reporting":
            continue
        spec: Any = one.spec
        kind, out = spec["gpuType"], {*facts.failed_gpus, *facts.cordoned_gpus, *facts.draining_gpus}
        held: dict[int, tuple[float, float]] = {}
        wanted = snapshot.in_force.get(one.name)
        for instance in wanted.instances if wanted else ():
            sm, memory = held.get(instance.gpu, (0.0, 0.0))
            held[instance.gpu] = (sm + instance.sm_percent, memory + instance.memory_gib)
        for gpu in range(spec["gpus"]):
            if gpu not in out:
                sm, memory = held.get(gpu, (0.0, 0.0))
                found.setdefault(kind, []).append((int(100 - sm), float(types[kind]["memoryGib"]) - memory))
    return found


def widest_free(room: Mapping[str, list[tuple[int, float]]], work: JobWork) -> dict[str, int]:
    """By GPU type that suits the job, the most SM% free on one GPU whose free memory would hold it; at least 0."""
    return {
        kind: max((sm for sm, memory in room.get(kind, ()) if memory >= needed), default=0)
        for kind, needed in sorted(work.memory_gib.items())
    }
