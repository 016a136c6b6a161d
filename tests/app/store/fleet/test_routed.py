"""Nodes that do not report: the longest silent first, then those that never have, by name."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from app.store.database.database import Database
from app.store.fleet.routed import SilentNode, list_silent_nodes

pytestmark = pytest.mark.slow

PATIENCE = timedelta(seconds=35)


def declare(database: Database, *names: str) -> None:
    sql = (
        "INSERT INTO object (uid, kind, name, labels, spec, status, generation, resource_version, selectable,"
        " created_at, updated_at) VALUES (gen_random_uuid(), 'Node', :name, '{}', '{}', '{}', 1, 1, '{}', now(), now())"
    )
    database.write(lambda c: c.execute(text(sql), [{"name": name} for name in names]))


def hear(database: Database, node: str, seconds_ago: float) -> None:
    sql = (
        "INSERT INTO node_state VALUES (:node, 1, moment() - make_interval(secs => :ago),"
        " '2001-01-01Z', '', 'ok', '', 0, 0, 0)"
    )
    database.write(lambda c: c.execute(text(sql), {"node": node, "ago": seconds_ago}))


def rent(database: Database, node: str, state: str) -> None:
    sql = (
        "INSERT INTO rented_node (key, node, pool, hook, state, asked_at, since, start_seconds, minimum_seconds)"
        " VALUES (:node, :node, 'burst', 'cloud', :state, moment(), moment(), 60, 60)"
    )
    database.write(lambda c: c.execute(text(sql), {"node": node, "state": state}))


def listed(database: Database) -> list[SilentNode]:
    return database.read(lambda connection: list_silent_nodes(connection, PATIENCE))


def test_of_many_new_nodes_the_first_hundred_by_name_are_listed(database: Database) -> None:
    names = [f"n-{number:03}" for number in range(150)]
    declare(database, *reversed(names))
    assert [node.name for node in listed(database)] == names[:100]


def test_silent_nodes_come_first_and_rented_ones_that_have_not_reported_are_starting(database: Database) -> None:
    declare(database, "burst-1", "burst-2", "heard", "long", "new", "short")
    hear(database, "heard", 5)
    hear(database, "long", 900)
    hear(database, "short", 60)
    rent(database, "burst-1", "starting")
    rent(database, "burst-2", "late")
    found = [(node.name, node.received_at is not None, node.is_starting) for node in listed(database)]
    assert found == [
        ("long", True, False), ("short", True, False),
        ("burst-1", False, True), ("burst-2", False, False), ("new", False, False),
    ]  # fmt: skip
