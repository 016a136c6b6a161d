"""The world that a leader holds follows the declarations, and stays the same object while they do not change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from app.control.domain.snapshot import DeclaredObject
from app.control.observe.world import WorldCache
from app.manifests.model import Key, Kind
from app.store.database import versions
from app.store.database.database import Database
from app.store.fleet import observed
from app.store.world import changes
from simulation.world import put, read_documents
from tests.app.control.as_manifests import manifests
from tests.simulation.worlds import withdraw
from tests.solvers.planning.small_world import problem

pytestmark = pytest.mark.slow


def documents() -> list[dict[str, Any]]:
    return manifests(replace(problem(), state=None))


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    found = Database(database_url, pool_size=2, direct=True)
    put(found, read_documents(documents()))
    yield found
    found.close()


def whole(database: Database) -> tuple[DeclaredObject, ...]:
    return tuple(DeclaredObject(*row) for row in database.read(observed.world))


def name_of_a_service(database: Database) -> Key:
    return next(
        Key(Kind.SERVICE, manifest.tenant, manifest.name) for manifest in whole(database) if manifest.kind == "Service"
    )


def test_while_nothing_is_declared_otherwise_the_very_same_world_is_read(database: Database) -> None:
    world = WorldCache()
    before = database.read(world.read)
    assert before == whole(database)
    assert database.read(world.read) is before


def test_a_new_version_that_changes_no_spec_is_no_other_world(database: Database) -> None:
    world = WorldCache()
    before = database.read(world.read)
    put(database, read_documents(documents()))
    database.write(lambda c: versions.advance(c, "object", versions.lock(c, "object") + 1))
    assert database.read(world.read) is before


def test_only_a_version_that_follows_what_was_read_is_skipped(database: Database) -> None:
    world, key = WorldCache(), name_of_a_service(database)
    before = database.read(world.read)
    read = database.read(observed.object_version)[0]
    withdraw(database, key)
    newest = database.read(observed.object_version)[0]
    world.skip(newest, newest + 6)
    after = database.read(world.read)
    assert after == whole(database) != before, "a deletion came between"
    world.skip(newest, newest + 6)
    assert database.read(lambda connection: world.read_at(connection, newest + 6, read)) is after


def test_of_a_changed_world_all_that_did_not_change_stays_the_same_object(database: Database) -> None:
    world = WorldCache()
    before = {(manifest.kind, manifest.name): manifest for manifest in database.read(world.read)}
    declared = documents()
    changed = next(manifest for manifest in declared if manifest["kind"] == "Service")
    changed["spec"]["ratePerSecond"] *= 2
    put(database, read_documents(declared))
    after = database.read(world.read)
    assert after == whole(database)
    new = [item for item in after if before[item.kind, item.name] is not item]
    assert [item.name for item in new] == [changed["metadata"]["name"]]


def test_what_is_deleted_is_gone_and_what_is_declared_again_is_there(database: Database) -> None:
    world, key = WorldCache(), name_of_a_service(database)
    database.read(world.read)
    withdraw(database, key)
    assert database.read(world.read) == whole(database)
    put(database, read_documents(documents()))
    withdraw(database, key)
    put(database, read_documents(documents()))
    assert database.read(world.read) == whole(database)


def test_deleted_objects_disappear_even_after_their_log_is_pruned(database: Database) -> None:
    world, key = WorldCache(), name_of_a_service(database)
    database.read(world.read)
    withdraw(database, key)

    def forget(connection: object) -> None:
        highest = changes.prune(connection, -60.0, 10_000)  # type: ignore[arg-type]
        versions.raise_floor(connection, "object", highest or 0)  # type: ignore[arg-type]

    database.write(forget)
    assert database.read(world.read) == whole(database)
