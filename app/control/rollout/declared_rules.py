"""Reads a rollout's rules from the declared world."""

from __future__ import annotations

from collections.abc import Iterable

from app.control.domain.snapshot import DeclaredObject
from app.control.domain.specs import (
    Spec,
    down_seconds,
    gpu_type_of,
    jobs_per_gpu,
    may_swap,
    memory_gib,
    min_instances,
    profile_key,
    start_seconds_of,
)
from app.control.rollout.rules import RolloutRules


def read_rules(declared: Iterable[DeclaredObject]) -> RolloutRules:
    """Returns what nodes have, services need and profiles say."""
    memory: dict[str, float] = {}
    types: dict[str, str] = {}
    least: dict[str, int] = {}
    starts: dict[str, float] = {}
    swapping: set[str] = set()
    policy: Spec = {}
    for manifest in declared:
        spec = manifest.spec
        match manifest.kind:
            case "GpuType":
                memory[manifest.name] = memory_gib(spec)
            case "Node":
                types[manifest.name] = gpu_type_of(spec)
            case "Service":
                least[manifest.full_name] = min_instances(spec)
            case "Job" if may_swap(spec):
                swapping.add(manifest.full_name)
            case "Profile":
                starts[profile_key(spec)] = start_seconds_of(spec)
            case "Policy":
                policy = spec
    return RolloutRules(
        memory_gib={node: memory[gpu_type] for node, gpu_type in types.items() if gpu_type in memory},
        gpu_types=types,
        min_instances=least,
        start_seconds=starts,
        swapping=frozenset(swapping),
        jobs_per_gpu=jobs_per_gpu(policy),
        down_seconds=down_seconds(policy),
    )
