"""Writes conditions into the status of objects: on change, a few objects at a time, by the leader only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log2
from typing import TypeAlias

from sqlalchemy import Connection

from app.access import Principal, Scope
from app.control.domain.events import NewEvent, event_of
from app.control.measure import metrics
from app.control.tell.conditions import Statement
from app.manifests.model import JSON, Fields, Key
from app.store.database import clock, lease, versions
from app.store.database.database import Database
from app.store.world import events, objects
from app.store.world.objects import StoredObject
from app.world.conditions import ConditionFields, ObjectCondition, set_condition
from app.world.decisions import Action, ObjectDecision
from app.world.write import Actor, write

OBJECTS_AT_ONCE = 100  # in one transaction, which makes other writers wait
OBJECTS_A_CYCLE = 500  # the rest waits for the next cycle

PLANNER = Actor(Principal("planner", Scope.ADMIN), "planner")
Specs: TypeAlias = Mapping[Key, Mapping[str, JSON]]
SkipVersions: TypeAlias = Callable[[int, int], None]  # takes the versions before and after a write of statuses


@dataclass(frozen=True, slots=True)
class ObjectStatus:
    """The conditions of one object and further fields of its status.

    A status with a `mark` is written only when the mark differs, not with every change. One that `is_whole` replaces
    all fields but the conditions: what it does not name is no longer true.
    """

    statements: tuple[ConditionFields, ...]
    fields: Mapping[str, JSON] = field(default_factory=dict)
    mark: object = None
    is_whole: bool = False

    @property
    def fingerprint(self) -> object:
        return self.mark if self.mark is not None else (self.statements, self.fields)


Statements: TypeAlias = Mapping[Key, ObjectStatus]


@dataclass(slots=True)
class StatusWriter:
    """Remembers the last status by object and spec, and writes only what is new."""

    skip: SkipVersions
    _known: dict[Key, tuple[object, Mapping[str, JSON]]] = field(default_factory=dict)

    def write(self, database: Database, epoch: int, statements: Statements, specs: Specs) -> int:
        """Writes the statuses that are new, and returns how many there were.

        `specs` are those that the statuses speak of. Objects without one are no longer declared, and an object that
        was edited since waits for the cycle that reads it. Nothing is written under an epoch that is over.
        """
        self._known = {key: known for key, known in self._known.items() if key in statements}
        there = {key: (status.fingerprint, specs[key]) for key, status in statements.items() if key in specs}
        fresh = [key for key, known in there.items() if self._known.get(key) != known]
        written = 0
        for at in range(0, min(len(fresh), OBJECTS_A_CYCLE), OBJECTS_AT_ONCE):
            some = {key: statements[key] for key in fresh[at : at + OBJECTS_AT_ONCE]}
            done = database.write(lambda connection, some=some: write_statuses(connection, epoch, some, specs))  # type: ignore[misc]
            if done is None:
                self._known = {}
                return written
            self.skip(done.before, done.after)
            metrics.count_events(done.events)
            written += len(done.keys)
            self._known |= {key: there[key] for key in done.keys}
        return written


@dataclass(frozen=True, slots=True)
class WrittenStatuses:
    """The objects that say now what they should, the versions before and after a write, and its events."""

    keys: list[Key]
    before: int
    after: int
    events: list[NewEvent]


def write_statuses(
    connection: Connection, epoch: int, statements: Statements, specs: Specs
) -> WrittenStatuses | None:  # fmt: skip
    """Writes what is new of these statuses, and an event for each condition that changed; None under an old epoch."""
    if not lease.is_newest(connection, epoch):
        return None
    first = latest = versions.lock(connection, "object")
    stored = objects.get_many(connection, list(statements))
    now = clock.now(connection)
    decisions: list[ObjectDecision] = []
    found: list[NewEvent] = []
    keys = [key for key, before in stored.items() if before.spec == specs[key]]
    for key in keys:
        before = stored[key]
        after = before
        for statement in statements[key].statements:
            after = set_condition(after, statement, now)
            if isinstance(statement, Statement):
                found += _find_events(before, statement)
        status = _merge(after.status, statements[key])
        if status != after.status:
            after = replace(after, status=status, updated_at=now)
        if after is not before:
            decisions.append(ObjectDecision(Action.STATUS, before, after))
    if decisions:
        _, latest = write(connection, PLANNER, decisions, latest)
    events.record(connection, found)
    return WrittenStatuses(keys, first, latest, found)


def _merge(before: Mapping[str, JSON], status: ObjectStatus) -> dict[str, JSON]:
    stays = {name: value for name, value in before.items() if name == "conditions" or not status.is_whole}
    return {**stays, **status.fields}


def _find_events(before: StoredObject, statement: Statement) -> Sequence[NewEvent]:
    """Returns an event where the condition has changed; one that is as good as before, or from the start, has none."""
    known = next((condition for condition in before.conditions if condition["type"] == statement.type), None)
    was = (known["status"], known["reason"]) if known else None
    if was == (statement.status, statement.reason) or "Unknown" in (statement.status, was and was[0]):
        return ()
    if (was is None or was[0] == statement.status) and statement.why.severity == "info":
        return ()
    key = before.key
    return [event_of(statement.why, statement.message, kind=str(key.kind), tenant=key.tenant, name=key.name)]


def make_job_status(status: Fields) -> ObjectStatus:
    """Returns the status of a job.

    It is new when a condition changes, after another hundredth of the job, and once its speed is known or has doubled.
    """
    fields = {name: value for name, value in status.items() if name != "conditions"}
    conditions = tuple(ObjectCondition(**condition) for condition in status["conditions"])
    states = tuple((condition.type, condition.status, condition.reason) for condition in conditions)
    speed = max(float(status.get(f"{unit}PerSecond", 0.0)) for unit in ("steps", "requests"))
    doublings = round(log2(speed)) if speed > 0 else None
    mark = (states, round(float(status["progress"]), 2), status.get("node"), doublings)
    return ObjectStatus(conditions, fields, mark, is_whole=True)
