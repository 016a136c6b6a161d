"""The condition Reporting of each node: whether its agent sends reports."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection

from app.access import Principal, Scope
from app.manifests.model import Key, Kind
from app.store.database import clock, versions
from app.store.fleet import node_state
from app.store.world import objects
from app.store.world.objects import rfc3339
from app.world.conditions import ObjectCondition, set_condition
from app.world.decisions import Action, ObjectDecision
from app.world.write import Actor, write

PATIENCE = timedelta(seconds=35)  # three reports missed
NODES_AT_ONCE = 25  # in one transaction, which makes other writers wait

SYSTEM = Actor(Principal("housekeeping", Scope.ADMIN), "housekeeping")


def make_condition(reason: str, last_report: datetime | None) -> ObjectCondition:
    """Returns the condition; it is constant while the node is silent, so that silence is a single change."""
    match reason:
        case "Reporting":
            return ObjectCondition("Reporting", "True", reason, "reports arrive")
        case "NeverReported":
            return ObjectCondition("Reporting", "Unknown", reason, "no agent of this node has reported yet")
        case _:
            since = rfc3339(last_report) if last_report else "ever"
            message = f"no report since {since}; its copies are presumed to run on"
            return ObjectCondition("Reporting", "Unknown", "Silent", message)


def update_reporting(connection: Connection, since: datetime) -> int:
    """Updates the conditions; returns how many have changed.

    `since` is when this server began to receive reports without a gap. Silence counts from then on, so that a stop of
    the server or of the database does not make a whole fleet look lost.
    """
    if not node_state.reporting_changes(connection, since, PATIENCE, 1):
        return 0
    latest = versions.lock(connection, "object")
    found = node_state.reporting_changes(connection, since, PATIENCE, NODES_AT_ONCE)
    stored = objects.get_many(connection, [Key(Kind.NODE, "", name) for name, _, _ in found])
    now = clock.now(connection)
    decisions = []
    for name, last_report, reason in found:
        before = stored[Key(Kind.NODE, "", name)]
        after = set_condition(before, make_condition(reason, last_report), now)
        decisions.append(ObjectDecision(Action.STATUS, before, after))
    write(connection, SYSTEM, decisions, latest)
    return len(decisions)
