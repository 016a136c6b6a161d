"""Reads the testbeds of papers: the manifests of lab/testbeds/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from app.manifests.model import Key, Kind, Manifest
from app.manifests.offline import DeclaredFiles
from simulation.world import read_files


def testbed(name: str, rates: Mapping[str, float]) -> DeclaredFiles:
    """Returns a testbed with these services alone, at these declared rates."""
    world = read_files(Path(__file__).parents[1] / "testbeds" / f"{name}.yaml")
    manifests: dict[Key, Manifest] = {}
    for key, manifest in world.manifests.items():
        if key.kind is not Kind.SERVICE:
            manifests[key] = manifest
        elif (service := f"{key.tenant}/{key.name}") in rates:
            manifests[key] = replace(manifest, spec={**manifest.spec, "ratePerSecond": rates[service]})
    return DeclaredFiles(manifests)
