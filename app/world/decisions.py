"""Decides what a declaration changes: a pure comparison of the wanted with the stored objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from uuid import uuid4

from app.manifests.diff import diff
from app.manifests.model import JSON, Key, Kind, Manifest
from app.manifests.selectable import selector_entries
from app.store.world.objects import StoredObject


class Action(StrEnum):
    """The effect of a declaration on an object."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    DELETED = "deleted"
    STATUS = "status"  # only its status or its visibility changes


@dataclass(frozen=True, slots=True)
class ObjectDecision:
    """An object before and after; `after` has no resource version yet."""

    action: Action
    before: StoredObject | None
    after: StoredObject | None

    @property
    def object(self) -> StoredObject:
        """Returns the object after the change, or before its deletion."""
        stored = self.after or self.before
        assert stored is not None
        return stored

    @property
    def key(self) -> Key:
        return self.object.key


def decide(manifests: Iterable[Manifest], current: Mapping[Key, StoredObject], now: datetime) -> list[ObjectDecision]:
    """Returns the decision: spec and labels replace the stored ones; an equal declaration changes nothing."""
    return [_decide(manifest, current.get(manifest.key), now) for manifest in manifests]


def _decide(manifest: Manifest, before: StoredObject | None, now: datetime) -> ObjectDecision:
    if before is None:
        return ObjectDecision(Action.CREATED, None, _create(manifest, now))
    same_spec = _same(before.spec, manifest.spec, manifest.kind)
    if same_spec and before.labels == manifest.labels:
        return ObjectDecision(Action.UNCHANGED, before, before)
    after = replace(
        before,
        labels=manifest.labels,
        spec=manifest.spec,
        generation=before.generation + (not same_spec),
        admits=admits(manifest) if manifest.kind is Kind.MODEL else before.admits,
        selectable=selector_entries(manifest),
        updated_at=now,
    )
    return ObjectDecision(Action.UPDATED, before, after)


def _same(before: Mapping[str, JSON], after: Mapping[str, JSON], kind: Kind) -> bool:
    # To Python 1 equals true. Only a Model has fields that may be either: the arguments of its runtimes.
    return before == after and (kind is not Kind.MODEL or not diff(dict(before), dict(after)))


def _create(manifest: Manifest, now: datetime) -> StoredObject:
    return StoredObject(
        uid=uuid4(),
        kind=manifest.kind,
        tenant=manifest.tenant,
        name=manifest.name,
        labels=manifest.labels,
        spec=manifest.spec,
        status={},
        generation=1,
        resource_version=0,
        admits=admits(manifest) if manifest.kind is Kind.MODEL else None,
        created_at=now,
        updated_at=now,
        selectable=selector_entries(manifest),
    )


def deletions(objects: Iterable[StoredObject]) -> list[ObjectDecision]:
    return [ObjectDecision(Action.DELETED, stored, None) for stored in objects]


def admits(manifest: Manifest) -> list[str] | None:
    """Returns the tenants that a Model admits; None for all."""
    tenants = manifest.spec.get("tenants")
    return [str(tenant) for tenant in tenants] if isinstance(tenants, list) else None
