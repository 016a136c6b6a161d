"""Saves what is desired of HAProxy on disk, and reads it when the sidecar starts."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from agents.contract.paths import PathTable
from agents.gateway.desired import Desired, Malformed, split_address
from agents.gateway.wire import DeclaredRoutes, RouteSpec, ServiceLimit
from agents.host import durable

log = logging.getLogger("gpuwright.gateway")


class SavedRoutes(msgspec.Struct):
    """A source's routes on disk. Each is decoded alone, so that a faulty one does not cost the others."""

    sequence: int
    routes: tuple[msgspec.Raw, ...] = ()
    paths: PathTable = {}


class DesiredFile(msgspec.Struct, rename="camel"):
    """The desired state as saved on disk."""

    sources: dict[str, SavedRoutes]
    slots: dict[str, int]
    slot_count: int
    limits: dict[str, ServiceLimit] = {}


def read(path: Path) -> Desired:
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=DesiredFile)
    except FileNotFoundError:
        return Desired()
    sources = {source: _readable(source, declared) for source, declared in stored.sources.items()}
    return Desired(sources, stored.slots, stored.slot_count, stored.limits)


def _readable(source: str, saved: SavedRoutes) -> DeclaredRoutes:
    """Returns the routes without malformed ones and those whose address no copy can have."""
    routes = []
    for raw in saved.routes:
        try:
            route = msgspec.json.decode(raw, type=RouteSpec)
            split_address(route.address)
        except (msgspec.ValidationError, Malformed) as error:
            log.error("a saved route of %s is left out: %s", source, error)
        else:
            routes.append(route)
    return DeclaredRoutes(saved.sequence, tuple(routes), saved.paths)


def keep(path: Path, desired: Desired) -> None:
    sources = {
        source: SavedRoutes(
            declared.sequence,
            tuple(msgspec.Raw(msgspec.json.encode(route)) for route in desired.accepted(source, declared)),
            declared.paths,
        )
        for source, declared in desired.sources.items()
    }
    stored = DesiredFile(sources, dict(desired.slots), desired.slot_count, dict(desired.limits))
    durable.write(path, msgspec.json.encode(stored))
