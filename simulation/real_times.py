"""Gives servers that only play a model the times that the truth of simulated GPUs has for it.

They are processes of gpuwright-serve that wait as long as their `latency` argument says, by batch and SM%.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.control.formulate.problem import build_problem
from app.manifests.model import Key, Kind, Manifest
from app.manifests.offline import DeclaredFiles
from simulation.physical_truth import learn
from simulation.truth import LoadKey, Physics


def with_real_times(world: DeclaredFiles, physics: Physics) -> DeclaredFiles:
    """Returns the world whose playing servers take the physics' time alone on the first kind of GPU with a profile."""
    problem = build_problem(world)
    learn(physics, problem)
    manifests: dict[Key, Manifest] = {}
    for key, manifest in world.manifests.items():
        manifests[key] = manifest
        if key.kind is not Kind.MODEL:
            continue
        spec: dict[str, Any] = dict(manifest.spec)
        found = {load[1]: load for load in sorted(problem.profiles, reverse=True) if load[0] == manifest.name}
        spec["variants"] = [_timed(variant, found.get(variant["name"]), physics) for variant in spec["variants"]]
        manifests[key] = replace(manifest, spec=spec)
    return DeclaredFiles(manifests)


def _timed(variant: dict[str, Any], load: LoadKey | None, physics: Physics) -> dict[str, Any]:
    runtime = variant.get("runtime") or {}
    arguments = runtime.get("args") or {}
    if load is None or "latency" not in arguments:
        return variant
    batches = []
    for text in str(arguments["latency"]).split(";"):
        batch, _, points = text.partition(":")
        shares = [point.partition("=")[0] for point in points.split(",")]
        times = [f"{share}={physics.alone_ms(load, float(batch), float(share)):.4g}" for share in shares]
        batches.append(f"{batch}:{','.join(times)}")
    return {**variant, "runtime": {**runtime, "args": {**arguments, "latency": ";".join(batches)}}}
