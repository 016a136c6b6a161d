"""Conditions reach the objects: written on change, a few objects at a time, by the leader alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from sqlalchemy import Connection

from app.access import Principal, Scope
from app.control.domain.events import NewEvent, event_of
from app.control.measure import metrics
from app.control.tell.conditions import Statement
from app.manifests.model import JSON, Key
from app.store.database import clock, lease, versions
from app.store.database.database import Database
from app.store.world import events, objects
from app.store.world.objects import StoredObject
from app.world.conditions import ConditionFields, ObjectCondition, with_condition
from app.world.decisions import Action, ObjectDecision
from app.world.write import Actor, write

AT_ONCE = 100  # other writers of objects wait for no longer than this takes
A_CYCLE = 500  # objects; what is left waits for the next one

PLANNER = Actor(Principal("planner", Scope.ADMIN), "planner")
Specs: TypeAlias = Mapping[Key, Mapping[str, JSON]]


@dataclass(frozen=True, slots=True)
class ObjectStatus:
    """What is said of one object: conditions and, beside them, fields of its status.

    `mark` is what has to differ for it to be news, where that is less than all of it.
    """

    statements: tuple[ConditionFields, ...]
    fields: Mapping[str, JSON] = field(default_factory=dict)
    mark: object = None

    @property
    def news(self) -> object:
        return self.mark if self.mark is not None else (self.statements, self.fields)


Statements: TypeAlias = Mapping[Key, ObjectStatus]


@dataclass(slots=True)
class StatusWriter:
    """Remembers what it said of which spec, so that only what is new is looked at."""

    _known: dict[Key, tuple[object, Mapping[str, JSON]]] = field(default_factory=dict)

    def say(self, database: Database, epoch: int, statements: Statements, specs: Specs) -> int:
        """Bring the conditions of these objects in line; how many had news.

        Objects without a spec here are no longer declared. Under an epoch that is over nothing is written.
        """
        self._known = {key: told for key, told in self._known.items() if key in statements}
        there = {key: (told.news, specs[key]) for key, told in statements.items() if key in specs}
        news = [key for key, told in there.items() if self._known.get(key) != told]
        looked = 0
        for at in range(0, min(len(news), A_CYCLE), AT_ONCE):
            some = {key: statements[key] for key in news[at : at + AT_ONCE]}
            done = database.write(lambda connection, some=some: write_statuses(connection, epoch, some))  # type: ignore[misc]
            if done is None:
                self._known = {}
                return looked
            metrics.count_events(done)
            looked += len(some)
            self._known |= {key: there[key] for key in some}
        return looked


def write_statuses(connection: Connection, epoch: int, statements: Statements) -> list[NewEvent] | None:
    """Write what is new of these statements, and an event for each that turned; None when a newer epoch won."""
    if not lease.held(connection, epoch):
        return None
    latest = versions.lock(connection, "object")
    stored = objects.get_many(connection, list(statements))
    now = clock.now(connection)
    decisions: list[ObjectDecision] = []
    turned: list[NewEvent] = []
    for key, before in stored.items():
        after = before
        for statement in statements[key].statements:
            after = with_condition(after, statement, now)
            if isinstance(statement, Statement):
                turned += _turned(before, statement)
        fields = statements[key].fields
        if any(after.status.get(name) != value for name, value in fields.items()):
            after = replace(after, status={**after.status, **fields}, updated_at=now)
        if after is not before:
            decisions.append(ObjectDecision(Action.STATUS, before, after))
    if decisions:
        write(connection, PLANNER, decisions, latest)
    events.record(connection, turned)
    return turned


def _turned(before: StoredObject, statement: Statement) -> Sequence[NewEvent]:
    """An event where the statement says something else than before; that all is well from the start is none."""
    conditions: list[Any] = list(before.status.get("conditions", []))  # type: ignore[arg-type]
    known = next((one for one in conditions if one["type"] == statement.type), None)
    was = (known["status"], known["reason"]) if known else None
    if was == (statement.status, statement.reason) or "Unknown" in (statement.status, was and was[0]):
        return ()
    if was is None and statement.why.severity == "info":
        return ()
    key = before.key
    return [event_of(statement.why, statement.message, kind=str(key.kind), tenant=key.tenant, name=key.name)]


def make_job_status(status: Mapping[str, Any]) -> ObjectStatus:
    """A job's status, with its conditions; news when it takes a turn, or has come another hundredth of its way."""
    fields = {name: value for name, value in status.items() if name != "conditions"}
    conditions = tuple(ObjectCondition(**one) for one in status["conditions"])
    turns = tuple((one.type, one.status, one.reason) for one in conditions)
    return ObjectStatus(conditions, fields, (turns, round(float(status["progress"]), 2), status.get("node")))
