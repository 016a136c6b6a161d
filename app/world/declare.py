"""Declares, patches and deletes objects: in one transaction, checked as a whole, then written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from app.access import AccessVerb, require
from app.manifests.faults import ManifestFault
from app.manifests.heading import SET_LABEL
from app.manifests.model import JSON, Free, Key, Kind, Manifest
from app.manifests.reader import Document
from app.manifests.validate import validate
from app.problem import HttpProblem
from app.store.database import clock, versions
from app.store.world import objects
from app.store.world.objects import StoredObject
from app.world import allowance, consequences, consistent, occupants
from app.world.consistent import invalid
from app.world.decisions import Action, ObjectDecision, decide, deletions
from app.world.sets import ObjectSet, join_set, keep_sets, list_left_out, refuse_foreign_sets
from app.world.write import Actor, write

ANY_VERSION = 0  # expected of an object that must exist, at any version
NO_VERSION = -1  # expected where no object may be yet


@dataclass(frozen=True, slots=True)
class Declaration:
    """The effects of a declaration or dry run; `decisions` in the order of the manifests, then what was pruned."""

    decisions: list[ObjectDecision]
    resource_version: int


def declare(
    connection: Connection,
    actor: Actor,
    manifests: Sequence[Manifest],
    *,
    dry_run: bool = False,
    expected: int | None = None,
    applied_as: ObjectSet | None = None,
    keeps_sets: bool = False,
    currency: str = "",
    most_objects: int = 0,
) -> Declaration:
    """Declares all `manifests`, or raises a problem that names every fault.

    `keeps_sets` leaves objects in the sets that their manifests do not name.
    `currency` is that of all prices; if it is empty, budgets may be in any. A tenant may have `most_objects` services
    and jobs; 0 means any number.
    """
    for manifest in manifests:
        require(actor.principal, manifest.kind, AccessVerb.WRITE, manifest.tenant)
    latest = _latest(connection, dry_run)
    current = objects.get_many(connection, (manifest.key for manifest in manifests))
    if expected is not None:
        _check_unchanged(expected, manifests[0].key, current)
    if applied_as is not None:
        manifests = join_set(manifests, current, applied_as)
    if keeps_sets:
        manifests = keep_sets(manifests, current)
    decisions = decide(manifests, current, clock.now(connection))
    if applied_as is not None and applied_as.prune:
        decisions += deletions(list_left_out(connection, actor.principal, manifests, applied_as))
    if most_objects:
        _refuse_too_many(connection, decisions, most_objects)
    return _carry_out(connection, actor, decisions, latest, dry_run, {m.key: m.document for m in manifests}, currency)


def patch(
    connection: Connection,
    actor: Actor,
    key: Key,
    change: Mapping[str, JSON],
    *,
    dry_run: bool = False,
    expected: int | None = None,
    currency: str = "",
) -> Declaration:
    """Merges a change (RFC 7396) into an object's labels and spec. Only one that names the set's label drops it."""
    latest, stored = _there(connection, key, dry_run, expected)
    manifest = merge_patch(stored.wire(), change, key)
    if not names_label(change, SET_LABEL):
        (manifest,) = keep_sets([manifest], {key: stored})
    decisions = decide([manifest], {key: stored}, clock.now(connection))
    return _carry_out(connection, actor, decisions, latest, dry_run, {key: manifest.document}, currency)


def delete(
    connection: Connection,
    actor: Actor,
    key: Key,
    *,
    dry_run: bool = False,
    expected: int | None = None,
    force: bool = False,
) -> Declaration:
    """Deletes an object that nothing refers to; `force` deletes a node with everything on it."""
    latest, stored = _there(connection, key, dry_run, expected)
    return _carry_out(connection, actor, deletions([stored]), latest, dry_run, {}, force=force)


def missing(key: Key) -> HttpProblem:
    return HttpProblem("not-found", f"there is no {key}")


def _carry_out(
    connection: Connection,
    actor: Actor,
    decisions: list[ObjectDecision],
    latest: int,
    dry_run: bool,
    documents: Mapping[Key, str],
    currency: str = "",
    force: bool = False,
) -> Declaration:
    refuse_foreign_sets(actor.principal, decisions)
    consistent.check(connection, actor.principal, decisions, documents, currency)
    if not force:
        gone = [d.key.name for d in decisions if d.action is Action.DELETED and d.key.kind is Kind.NODE]
        occupants.refuse_occupied(connection, gone)
    decided = len(decisions)
    now = clock.now(connection)
    decisions = consequences.follow(connection, decisions, now)
    if not dry_run:
        allowance.charge(connection, actor, decisions)
        decisions, latest = write(connection, actor, decisions, latest)
    return Declaration(decisions[:decided], latest)


def _latest(connection: Connection, dry_run: bool) -> int:
    """Returns the latest version; locks it until the transaction ends, except for a dry run: one writer at a time."""
    if dry_run:
        return versions.current(connection)["object"][0]
    return versions.lock(connection, "object")


def _there(connection: Connection, key: Key, dry_run: bool, expected: int | None) -> tuple[int, StoredObject]:
    """Returns the latest version and the object, which must exist at the expected version."""
    latest = _latest(connection, dry_run)
    stored = objects.get(connection, key)
    if stored is None:
        raise missing(key)
    if expected is not None:
        _check_unchanged(expected, key, {key: stored})
    return latest, stored


def _check_unchanged(expected: int, key: Key, current: Mapping[Key, StoredObject]) -> None:
    found = current.get(key)
    if expected == NO_VERSION:
        if found is not None:
            raise HttpProblem("precondition-failed", f"{key} exists, at version {found.resource_version}")
        return
    if found is None:
        raise HttpProblem("precondition-failed", f"there is no {key} to replace")
    if expected not in (ANY_VERSION, found.resource_version):
        now = found.resource_version
        raise HttpProblem(
            "precondition-failed", f"{key} is not at version {expected}: its version is now {now}; read it again"
        )


def _refuse_too_many(connection: Connection, decisions: Sequence[ObjectDecision], most: int) -> None:
    """Refuses what would give a tenant more services and jobs than it may have."""
    added: Counter[str] = Counter()
    for decision in decisions:
        if decision.key.kind.tenanted and decision.action in (Action.CREATED, Action.DELETED):
            added[decision.key.tenant] += 1 if decision.action is Action.CREATED else -1
    growing = sorted(tenant for tenant, count in added.items() if count > 0)
    there = objects.count_of_tenants(connection, growing) if growing else {}
    for tenant in growing:
        total = there.get(tenant, 0) + added[tenant]
        if total > most:
            raise HttpProblem(
                "conflict",
                f"tenant {tenant} would have {total:,} services and jobs, and may have {most:,}; delete some first, "
                "or have the operator raise GPUWRIGHT_TENANT_OBJECTS",
            )


def merge_patch(wire: Free, change: Mapping[str, JSON], key: Key) -> Manifest:
    """Returns the manifest that a patch makes of an object; its name and tenant stay."""
    known = {name: wire[name] for name in ("apiVersion", "kind", "spec")}
    known["metadata"] = {name: wire["metadata"][name] for name in ("name", "labels")}
    if key.tenant:
        known["metadata"]["tenant"] = key.tenant
    document = Document("patch", merge(known, change))
    manifests, faults = validate([document], default_tenant=key.tenant or "default", offline=False)
    if not faults and manifests[0].key != key:
        faults = [ManifestFault("patch", "metadata", f"a patch cannot change {key} into {manifests[0].key}")]
    if faults:
        raise invalid(faults)
    return manifests[0]


def names_label(change: Mapping[str, JSON], label: str) -> bool:
    """Returns whether a patch says something of this label itself, rather than of all labels."""
    metadata = change.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return isinstance(labels, dict) and label in labels


def merge(target: JSON, change: JSON | Mapping[str, JSON]) -> JSON:
    """Merges by RFC 7396: null removes, an object merges, anything else replaces."""
    if not isinstance(change, Mapping):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result
