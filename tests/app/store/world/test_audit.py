"""A plan that a person asked for names the person, and never an act of the product itself."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.access import Principal, Scope
from app.store.database.database import Database
from app.store.world import audit
from app.world.write import Actor

pytestmark = pytest.mark.slow

KINDS = ("Plan", "Cordon", "Campaign", "Node")


def note(database: Database, principal: str, verb: str, kind: str, name: str, scope: Scope = Scope.OPERATOR) -> None:
    entry = Actor(Principal(principal, scope), "r-1").entry(verb, kind, name=name)
    database.write(lambda connection: audit.record(connection, [entry]))


def describe(database: Database) -> str:
    return database.read(lambda connection: audit.describe_last_act(connection, KINDS, timedelta(minutes=1)))


def test_the_last_act_is_a_persons_and_not_the_planners_an_agents_or_a_nodes_that_joins(database: Database) -> None:
    assert describe(database) == ""
    note(database, "planner", "create", "Node", "burst-1", Scope.ADMIN)
    assert describe(database) == ""
    note(database, "person:ann", "cordon", "Cordon", "n-1")
    for principal, verb, kind, scope in (
        ("planner", "create", "Node", Scope.ADMIN),
        ("housekeeping", "update", "Node", Scope.ADMIN),
        ("join:j1", "create", "Node", Scope.OPERATOR),
        ("join:j1", "join", "Node", Scope.OPERATOR),
        ("kubernetes:gpuwright-nodes/agent", "join", "Node", Scope.OPERATOR),
        ("node/n-2", "cordon", "Cordon", Scope.NODE),
        ("person:bob", "update", "Service", Scope.OPERATOR),
    ):
        note(database, principal, verb, kind, "n-2", scope)
        assert describe(database) == "person:ann asked for it: cordon cordon n-1", principal
    note(database, "person:bob", "approve", "Plan", "7")
    assert describe(database) == "person:bob asked for it: approve plan 7"
