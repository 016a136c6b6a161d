"""Reads a world of manifests from files: to declare it in a store, and as the truth of a simulated fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection

from app.access import Principal, Scope
from app.control.domain.specs import start_seconds_of
from app.control.formulate.problem import build_problem
from app.manifests.model import JSON, Kind, Manifest
from app.manifests.offline import DeclaredFiles, Input, load
from app.manifests.uncertain import MEAN_QUANTILE
from app.store.database.database import Database
from app.store.fleet import observed
from app.world.declare import declare
from app.world.write import Actor
from simulation.fleet_truth import FleetTruth
from simulation.physical_truth import PhysicalTruth
from simulation.truth.physics import Physics
from solvers.planning.problem import ProfileKey

ACTOR = Actor(Principal("simulation", Scope.ADMIN), "simulation")


def read_files(*paths: Path) -> DeclaredFiles:
    return load(paths)


def read_store(connection: Connection) -> DeclaredFiles:
    """Returns the declared world."""
    found = (Manifest(Kind(kind), tenant, name, spec) for kind, tenant, name, spec in observed.world(connection))
    return DeclaredFiles({manifest.key: manifest for manifest in found})


def read_documents(documents: Sequence[Mapping[str, Any]]) -> DeclaredFiles:
    """Reads documents as in a file. Raises app.manifests.faults.ManifestsRefused."""
    return load([Input("documents", msgspec.json.encode(documents), "json")])


def set_policy(world: DeclaredFiles, fields: Mapping[str, JSON]) -> DeclaredFiles:
    """Returns the world with these fields in its policy, which it may lack."""
    known = world.of(Kind.POLICY)
    policy = known[0] if known else Manifest(Kind.POLICY, "", "default", {})
    changed = replace(policy, spec={**policy.spec, **fields})
    return DeclaredFiles({**world.manifests, changed.key: changed})


def put(database: Database, world: DeclaredFiles) -> None:
    """Declares all of it at once."""
    manifests: list[Manifest] = list(world.manifests.values())
    database.write(lambda connection: declare(connection, ACTOR, manifests))


def truth_of(world: DeclaredFiles, physics: Physics | None = None) -> FleetTruth:
    """Returns the fleet's truth: a physics, or the profiles."""
    declared = FleetTruth(build_problem(world, MEAN_QUANTILE), start_seconds(world.of(Kind.PROFILE)))
    return declared if physics is None else PhysicalTruth.of(declared, physics)


def start_seconds(profiles: Iterable[Manifest]) -> dict[ProfileKey, float]:
    found = {}
    for profile in profiles:
        spec: Mapping[str, Any] = profile.spec
        key = (str(spec["model"]), str(spec["variant"]), str(spec["gpuType"]))
        found[key] = start_seconds_of(spec)
    return found
