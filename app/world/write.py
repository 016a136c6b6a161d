"""Stores decisions: versions, objects, references, changes and audit, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from app.access import Principal
from app.ledger.booking import book
from app.manifests.model import Kind, Manifest, WrittenSpec
from app.manifests.references import list_references
from app.store.access import tokens
from app.store.database import clock, versions
from app.store.fleet import cordons, endpoints, node_state, reclaims
from app.store.world import audit, changes, objects, references
from app.store.world.objects import StoredObject
from app.world.decisions import Action, ObjectDecision


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of a write, and the request."""

    principal: Principal
    request_id: str
    most_changes: int = 0  # that its account may make a day; 0: any number
    via: str = ""  # what it was written with, if that was not the API

    def entry(self, verb: str, kind: str, **rest: Any) -> audit.AuditEntry:
        """Returns an audit entry of this actor."""
        rest["detail"] = "; ".join(filter(None, (rest.get("detail"), self.via)))
        return audit.AuditEntry(
            request_id=self.request_id,
            principal=self.principal.id,
            scope=self.principal.scope,
            principal_tenant=self.principal.tenant,
            verb=verb,
            kind=kind,
            **({"outcome": "done"} | rest),
        )


VERBS = {Action.CREATED: "create", Action.UPDATED: "update", Action.DELETED: "delete"}
LOGGED = {
    Action.CREATED: "added",
    Action.UPDATED: "modified",
    Action.STATUS: "modified",
    Action.DELETED: "deleted",
}


def write(
    connection: Connection, actor: Actor, decisions: Sequence[ObjectDecision], latest: int
) -> tuple[list[ObjectDecision], int]:
    """Stores the decisions, each at its own version after `latest`; returns what was stored, and the last version.

    The caller holds the lock of the object versions.
    """
    moved = [decision for decision in decisions if decision.action is not Action.UNCHANGED]
    if not moved:
        return list(decisions), latest
    versioned = {d.key: _set_version(d, latest + n) for n, d in enumerate(moved, 1)}
    latest += len(moved)
    by_action: dict[Action, list[StoredObject]] = {action: [] for action in Action}
    for decision in versioned.values():
        by_action[decision.action].append(decision.object)
    objects.delete(connection, by_action[Action.DELETED])
    _retire_nodes(connection, actor, [o.name for o in by_action[Action.DELETED] if o.kind is Kind.NODE])
    objects.insert(connection, by_action[Action.CREATED])
    objects.update(connection, by_action[Action.UPDATED])
    objects.update_status(connection, by_action[Action.STATUS])
    _book(connection, list(versioned.values()))
    node_state.mark_for_comparison(connection, [o.name for o in by_action[Action.UPDATED] if o.kind is Kind.GPU_TYPE])
    references.replace(
        connection,
        {
            d.object.uid: targets
            for d in versioned.values()
            if (targets := _targets(d.after)) != _targets(d.before) and d.after
        },
    )
    changes.record(
        connection,
        [(LOGGED[d.action], d.object, d.before.admits if d.before else None) for d in versioned.values()],
    )
    audit.record(
        connection,
        [
            actor.entry(
                VERBS[d.action],
                str(d.key.kind),
                tenant=d.key.tenant,
                name=d.key.name,
                before=d.before.wire() if d.before else None,
                after=d.after.wire() if d.after else None,
            )
            for d in versioned.values()
            if d.action in VERBS
        ],
    )
    versions.advance(connection, "object", latest)
    if any(o.kind is Kind.SERVICE for o in (*by_action[Action.CREATED], *by_action[Action.DELETED])):
        endpoints.note_declared(connection)
    return [versioned.get(d.key, d) for d in decisions], latest


def _retire_nodes(connection: Connection, actor: Actor, nodes: Sequence[str]) -> None:
    """Revokes the tokens of deleted nodes and lifts their cordons and notices: a node declared again has none."""
    tokens.revoke_of_nodes(connection, nodes)
    for node in nodes:
        reclaims.forget(connection, node)
        lifted = cordons.lift(connection, node, cordons.ALL_GPUS)
        if lifted:
            before = {"cordons": [cordoned.wire() for cordoned in lifted]}
            audit.record(connection, [actor.entry("uncordon", "Cordon", name=node, before=before)])


def _book(connection: Connection, decisions: Sequence[ObjectDecision]) -> None:
    """Records the declared prices of GPUs, and the GPUs that are paid for, from now on."""
    declared: dict[Kind, dict[str, WrittenSpec | None]] = {Kind.NODE: {}, Kind.GPU_TYPE: {}}
    for decision in decisions:
        if decision.action in VERBS and decision.key.kind in declared:
            declared[decision.key.kind][decision.key.name] = decision.after.spec if decision.after else None
    if any(declared.values()):
        book(connection, declared[Kind.NODE], declared[Kind.GPU_TYPE], clock.now(connection))


def _set_version(decision: ObjectDecision, version: int) -> ObjectDecision:
    if decision.after is not None:
        return replace(decision, after=replace(decision.after, resource_version=version))
    assert decision.before is not None
    return replace(decision, before=replace(decision.before, resource_version=version))


def _targets(stored: StoredObject | None) -> list[references.Target]:
    """Returns the references of an object."""
    if stored is None:
        return []
    return [
        references.Target(r.key, r.part) for r in list_references(Manifest(*stored.key, stored.spec, stored.labels))
    ]
