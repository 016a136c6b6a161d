"""Refuses what planners could not keep apart under a policy with shareAcrossTenants: false."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection

from app.manifests.apart import find_unseparated, keeps_apart
from app.manifests.faults import ManifestFault
from app.manifests.model import Key, Kind, Manifest
from app.store.world import objects
from app.store.world.objects import Selection

POLICY = Key(Kind.POLICY, "", "default")
LOOKED_AT = (Kind.POLICY, Kind.MODEL, Kind.SERVICE, Kind.JOB)
MOST = 100_000


def find_together(
    connection: Connection, manifests: Sequence[Manifest], deleted: Collection[Key]
) -> list[ManifestFault]:
    """Returns the faults of the world after a change; it reads the world only if the policy wants tenants apart."""
    written = {manifest.key: manifest for manifest in manifests if manifest.kind in LOOKED_AT}
    if not written:
        return []
    policy = written[POLICY].spec if POLICY in written else None
    if policy is None and POLICY not in deleted:
        stored = objects.get(connection, POLICY)
        policy = stored.spec if stored else None
    if not keeps_apart(policy):
        return []
    there = {
        stored.key: Manifest(*stored.key, stored.spec, stored.labels, "")
        for kind in LOOKED_AT
        for stored in objects.page(connection, Selection(kind), ("", ""), MOST)
        if stored.key not in deleted
    }
    world = {**there, **written}
    models = {key.name: found.spec for key, found in world.items() if key.kind is Kind.MODEL}
    return list(find_unseparated(world.values(), models))
