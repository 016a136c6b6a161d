"""Bounds what a tenant, or a token without a tenant, changes a day: each change stays in the audit for a year."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from sqlalchemy import Connection

from app.problem import HttpProblem
from app.store.database import clock
from app.store.world import change_counts
from app.store.world.objects import StoredObject
from app.world.decisions import Action, ObjectDecision
from app.world.write import Actor

UNIT_BYTES = 8 * 1024  # a change that writes more into the audit counts as several


def charge(connection: Connection, actor: Actor, decisions: Sequence[ObjectDecision]) -> None:
    """Counts the changes, or refuses them once the day's are used up. With `most_changes` 0 any number is allowed."""
    changed = [decision for decision in decisions if decision.action is not Action.UNCHANGED]
    if not actor.most_changes or not changed:
        return
    who = actor.principal
    account = f"tenant {who.tenant}" if who.tenant else f"token {who.account}"
    used = change_counts.add(connection, account, sum(map(_units, changed)))
    if used > actor.most_changes:
        seconds = _seconds_left(clock.now(connection))
        raise HttpProblem(
            "rate-limited",
            f"{account} may make {actor.most_changes:,} changes a day, and with this request it would make {used:,}; "
            f"try again in {seconds / 3600:.1f} hours, or have the operator raise GPUWRIGHT_TENANT_CHANGES",
            headers={"Retry-After": str(seconds)},
        )


def _units(decision: ObjectDecision) -> int:
    return 1 + (_bytes(decision.before) + _bytes(decision.after)) // UNIT_BYTES


def _bytes(stored: StoredObject | None) -> int:
    return len(msgspec.json.encode(stored.wire())) if stored else 0


def _seconds_left(now: datetime) -> int:
    """Returns the seconds until the next day begins, UTC."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return int((today + timedelta(days=1) - now).total_seconds()) + 1
