"""Nodes as an instance finds them: what they offer, how they are paid for, and the cores and memory that are left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agents.contract.assignments import AssignedInstance
from app.control.domain.policy import policy_spec
from app.control.domain.specs import Spec, gpu_type_of, model_of, purchase_of, quantile_of
from app.control.formulate.own_runtimes import declared_templates, encode_runtimes, find_offered
from app.control.jobs.room import OccupiedFleet
from app.manifests.uncertain import profile_at

SLACK = 1e-6  # of sums of cores and GiB


@dataclass(frozen=True, slots=True)
class HostRoom:
    """What a node has for instances beside its GPUs."""

    gpu_type: str
    is_spot: bool
    offered: frozenset[str] | None  # templates and own runtimes; None: all
    cpu_cores: float  # that no instance uses
    host_memory_gib: float

    def offers(self, runtime: str | None) -> bool:
        return runtime is None or self.offered is None or runtime in self.offered

    def holds(self, profile: Spec) -> bool:
        """Returns whether its cores and memory suffice for another instance."""
        cores, memory_gib = float(profile.get("cpuCores", 0.0)), float(profile.get("hostMemoryGib", 0.0))
        return cores <= self.cpu_cores + SLACK and memory_gib <= self.host_memory_gib + SLACK


def read_host_rooms(fleet: OccupiedFleet) -> dict[str, HostRoom]:
    """Returns every declared node with what the plan in force leaves of it."""
    declared = fleet.declared
    quantile = quantile_of(policy_spec(declared))
    own = encode_runtimes({item.name: item.spec for item in declared if item.kind == "Model"})
    profiles = {
        (model_of(item.spec), item.spec["variant"], gpu_type_of(item.spec)): profile_at(item.spec, quantile)
        for item in declared
        if item.kind == "Profile"
    }
    jobs = {item.full_name: item.spec for item in declared if item.kind == "Job"}
    found = {}
    for item in declared:
        if item.kind != "Node":
            continue
        spec, wanted = item.spec, fleet.in_force.get(item.name)
        kind, facts = gpu_type_of(spec), fleet.nodes.get(item.name)
        used = [_profile_of(line, kind, profiles, jobs, quantile) for line in (wanted.instances if wanted else ())]
        found[item.name] = HostRoom(
            kind, purchase_of(spec) == "spot", find_offered(declared_templates(spec, own), facts, own),
            spec["cpuCores"] - _sum(used, "cpuCores"), spec["memoryGib"] - _sum(used, "hostMemoryGib"),
        )  # fmt: skip
    return found


def _profile_of(
    line: AssignedInstance,
    gpu_type: str,
    profiles: Mapping[tuple[str, str, str], Spec],
    jobs: Mapping[str, Spec],
    quantile: float,
) -> Spec:
    if not line.job:
        return profiles.get((line.model, line.variant, gpu_type), {})
    measured = jobs.get(line.owner, {}).get("profiles", {})
    return profile_at(measured.get(gpu_type, {}), quantile)


def _sum(profiles: Iterable[Spec], field: str) -> float:
    return sum(float(profile.get(field, 0.0)) for profile in profiles)
