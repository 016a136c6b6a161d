"""Reads a rollout's rules from the declared world."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from app.control.domain.snapshot import DeclaredObject
from app.control.rollout.rules import RolloutRules
from app.manifests.fleet import PolicySpec
from app.manifests.work import ServiceSpec

LEAST: int = ServiceSpec.model_fields["min_instances"].default
JOBS: int = PolicySpec.model_fields["jobs_per_gpu"].default
START_SECONDS = 20.0


def rules_of(declared: Iterable[DeclaredObject], unproven: frozenset[str] = frozenset()) -> RolloutRules:
    """Returns what nodes have, services need and profiles say. `unproven`: shapes that need a canary."""
    memory: dict[str, float] = {}
    types: dict[str, str] = {}
    least: dict[str, int] = {}
    starts: dict[str, float] = {}
    jobs = JOBS
    for manifest in declared:
        spec: Any = manifest.spec
        match manifest.kind:
            case "GpuType":
                memory[manifest.name] = float(spec["memoryGib"])
            case "Node":
                types[manifest.name] = spec["gpuType"]
            case "Service":
                least[manifest.full_name] = int(spec.get("minInstances", LEAST))
            case "Profile":
                key = f"{spec['model']}/{spec['variant']}/{spec['gpuType']}"
                starts[key] = float(spec.get("startSeconds", START_SECONDS))
            case "Policy":
                jobs = int(spec.get("jobsPerGpu", JOBS))
    return RolloutRules(
        memory_gib={node: memory[gpu_type] for node, gpu_type in types.items() if gpu_type in memory},
        gpu_types=types,
        min_instances=least,
        start_seconds=starts,
        unproven=unproven,
        jobs_per_gpu=jobs,
    )
