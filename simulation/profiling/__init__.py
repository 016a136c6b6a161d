"""Takes profiles from a physics as from GPUs: by few measurements, alone and beside neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.control.formulate.problem import build_problem
from app.manifests.model import Key, Kind, Manifest
from app.manifests.offline import DeclaredFiles
from simulation.physical_truth import learn
from simulation.profiling.alone import figures_alone, measure_alone
from simulation.profiling.beside import NeighbourEffects, explain, measure_groups
from simulation.truth.family import generator
from simulation.truth.fitting import LoadKey
from simulation.truth.physics import Physics
from solvers.interference.pure_factors import COMPUTE
from solvers.planning.problem import Problem, ProfileKey

__all__ = ["COMPLETE", "SIXTEEN", "ProfilingEffort", "profile_world"]


@dataclass(frozen=True, slots=True)
class ProfilingEffort:
    """The extent of the measurements of a model on a kind of GPU."""

    settings: int | None  # None: all of them, without noise
    groups: int  # with neighbours, that begin with this model
    quantile: float | None  # of the groups that its largest sensitivity covers; None: the mean counts


SIXTEEN = ProfilingEffort(16, 16, 0.9)
COMPLETE = ProfilingEffort(None, 60, None)


def profile_world(world: DeclaredFiles, physics: Physics, effort: ProfilingEffort) -> DeclaredFiles:
    """Returns the world with measured profiles of the models that its services use; the others are left out."""
    problem = build_problem(world)
    learn(physics, problem)
    used = {(service.model, variant) for service in problem.services.values() for variant in service.variants}
    wanted = [key for key in sorted(problem.profiles) if key[:2] in used]
    effects: dict[ProfileKey, NeighbourEffects] = {}
    for gpu_type in sorted({key[2] for key in wanted}):
        effects |= _measure_beside(problem, physics, [key for key in wanted if key[2] == gpu_type], effort)
    manifests: dict[Key, Manifest] = {}
    for name, manifest in world.manifests.items():
        if name.kind is not Kind.PROFILE:
            manifests[name] = manifest
            continue
        spec: Mapping[str, Any] = manifest.spec
        key = (str(spec["model"]), str(spec["variant"]), str(spec["gpuType"]))
        if key in effects:
            figures = _measure(problem, physics, key, effort) | _write(effects[key])
            manifests[name] = replace(manifest, spec={**spec, **figures})
    return DeclaredFiles(manifests)


def _measure(problem: Problem, physics: Physics, key: ProfileKey, effort: ProfilingEffort) -> dict[str, Any]:
    latency_ms = problem.profiles[key].latency_ms
    clocks_mhz = problem.gpu_types[key[2]].clocks_mhz
    random = generator(physics.seed, "profiler", *key)
    known = measure_alone(physics, key, latency_ms, clocks_mhz, effort.settings, random)
    return figures_alone(known, latency_ms, clocks_mhz, effort.settings is not None)


def _measure_beside(
    problem: Problem, physics: Physics, keys: list[ProfileKey], effort: ProfilingEffort
) -> dict[ProfileKey, NeighbourEffects]:
    batches: dict[LoadKey, list[int]] = {key: sorted(problem.profiles[key].latency_ms) for key in keys}
    random = generator(physics.seed, "meetings", keys[0][2])  # part of the seed: another word draws other groups
    groups = measure_groups(physics, batches, effort.groups, random)
    return dict(zip(keys, explain(groups, keys, effort.quantile).values(), strict=True))


def _write(found: NeighbourEffects) -> dict[str, Any]:
    sensitivity: dict[str, Any] = {
        name: {"mean": mean, "q90": found.most_sensitivity[name], "n": found.groups, "source": "measured"}
        if found.most_sensitivity[name] > mean
        else mean
        for name, mean in found.sensitivity.items()
    }
    pressure = {name: {f"{at:g}": value for at, value in points} for name, points in found.pressure.items()}
    return {
        field: values if len(values) > 1 else values[COMPUTE]
        for field, values in (("pressure", pressure), ("sensitivity", sensitivity))
    }
