"""Gives and withdraws notices of reclaim: stored, shown in the node's status, audited, and an event, all at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from app.manifests.model import Key, Kind
from app.store.database import clock, versions
from app.store.fleet import reclaims, rented
from app.store.fleet.cordons import Cordon
from app.store.fleet.reclaims import NoticeSource
from app.store.world import audit, events, objects
from app.store.world.events import NewEvent, Severity
from app.store.world.objects import rfc3339
from app.world.conditions import ObjectCondition, set_condition
from app.world.decisions import Action, ObjectDecision
from app.world.write import Actor, write

NOUN = "Cordon"  # of audit entries: a token that may drain a node may give notice of it
CONDITION = "Reclaim"  # of a node


def give_notice(
    connection: Connection, actor: Actor, node: str, source: NoticeSource, deadline: datetime | None, message: str = ""
) -> bool:  # fmt: skip
    """Notes that the node will be reclaimed at the deadline, or without one, that who runs its cluster drains it.

    Returns False if that was known.
    """
    latest = versions.lock(connection, "object")
    if not reclaims.put(connection, node, source, deadline, actor.principal.id, message):
        return False
    given = {"deadline": deadline.isoformat() if deadline else None, "source": source, "message": message}
    _tell(connection, actor, node, latest, "reclaim", message, after=given)
    return True


def withdraw_notice(connection: Connection, actor: Actor, node: str) -> Cordon | None:
    """Withdraws every notice of the node, and returns the one that was in force; None if there was none."""
    latest = versions.lock(connection, "object")
    before = reclaims.read_in_force(connection, node)
    if before is None:
        return None
    reclaims.withdraw(connection, node)
    _tell(connection, actor, node, latest, "withdraw-reclaim", before=before.wire())
    return before


def forget_reported_notice(connection: Connection, actor: Actor, node: str) -> bool:
    """Drops the notice that the node's agent reports no longer; returns whether it was in force."""
    latest = versions.lock(connection, "object")
    if not reclaims.forget_reported(connection, node):
        return False
    _tell(connection, actor, node, latest, "withdraw-reclaim", before={"source": "node"})
    return True


def _tell(
    connection: Connection, actor: Actor, node: str, latest: int, verb: str, message: str = "",
    *, before: Mapping[str, object] | None = None, after: Mapping[str, object] | None = None,
) -> None:  # fmt: skip
    """Shows, audits and announces what is in force now: another notice may be left when one is withdrawn."""
    in_force = reclaims.read_in_force(connection, node)
    deadline = rfc3339(in_force.deadline) if in_force and in_force.deadline else ""
    text = f"the node will be reclaimed at {deadline}" if deadline else "the node will not be reclaimed"
    if in_force and not deadline:
        text = "who runs the node's cluster drains it"
    _show(connection, actor, node, latest, deadline, text)
    audit.record(connection, [actor.entry(verb, NOUN, name=node, before=before, after=after)])
    spelled = f"{text}: {message}" if message else text
    if deadline:
        # A node that is given back may get one by its own hook: Karpenter taints whatever it ends.
        severity: Severity = "info" if rented.is_leaving(connection, node) else "warning"
        event = NewEvent("reclaim_notice", severity, spelled, "Node", "", node)
    elif in_force:
        event = NewEvent("cluster_drain", "info", spelled, "Node", "", node)
    else:
        event = NewEvent("reclaim_withdrawn", "info", spelled, "Node", "", node)
    events.record(connection, [event])


def _show(connection: Connection, actor: Actor, node: str, latest: int, deadline: str, text: str) -> None:
    """Writes the notice into the node's status, where `get nodes` and watchers find it."""
    stored = objects.get(connection, Key(Kind.NODE, "", node))
    if stored is None:
        return
    condition = ObjectCondition(CONDITION, str(bool(deadline)), "NoticeGiven" if deadline else "NoNotice", text)
    after = set_condition(stored, condition, clock.now(connection))
    after = replace(after, status={**after.status, "reclaimAt": deadline})
    write(connection, actor, [ObjectDecision(Action.STATUS, stored, after)], latest)
