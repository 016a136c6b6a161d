"""Every statement of the declared world finds its rows by index on 100,000 of them, and none is run once a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, TextClause, event

from app.access import Principal, Scope
from app.manifests.model import Key, Kind, Manifest
from app.manifests.reader import Document
from app.manifests.validate import validate
from app.store.access import join_tokens, rotation, tokens
from app.store.database import versions
from app.store.database.database import Database
from app.store.world import audit, change_counts, changes, idempotency, objects, references
from app.store.world.objects import Selection
from app.world import declare
from app.world.sets import ObjectSet
from app.world.write import Actor
from tests.support.postgres import DatabaseServer
from tests.support.world import gpu_type, manifest, model, profile, service

ROWS = 100_000
MODULES = (audit, change_counts, changes, idempotency, join_tokens, objects, references, rotation, tokens, versions)
LARGE = ("object", "reference", "change", "audit", "idempotency", "token", "join_token")
ACTOR = Actor(Principal("tests", Scope.ADMIN), "request")
SEED = f"""
    INSERT INTO object
    SELECT gen_random_uuid(), kind, tenant, kind || '-' || n, '{{}}',
           jsonb_build_object('model', 'model-' || n % 300), '{{}}', 1, n, NULL,
           ARRAY['metadata.name=' || n, 'spec.model=model-' || n % 300, 'label:team=' || n % 1000], now(), now()
    FROM (SELECT n, CASE WHEN n % 10 < 6 THEN 'Service' ELSE 'Job' END AS kind, 'tenant-' || n % 50 AS tenant
          FROM generate_series(1, {ROWS}) AS n) AS made;
    INSERT INTO reference SELECT uid, 'Model', '', spec ->> 'model', '' FROM object WHERE kind = 'Service';
    INSERT INTO change
    SELECT resource_version, kind, tenant, name, uid, 'added', NULL, NULL, '{{}}',
           now() - make_interval(secs => {ROWS} - resource_version) FROM object;
    UPDATE version SET value = {ROWS} WHERE name = 'object';
    INSERT INTO audit (request_id, principal, scope, principal_tenant, verb, outcome, kind, tenant, name)
    SELECT 'r', 'p', 's', '', 'create', 'done', kind, tenant, name FROM object;
    INSERT INTO idempotency SELECT 'p' || n % 100, 'k' || n, '', 200, '{{}}', '', now() - make_interval(secs => n)
    FROM generate_series(1, {ROWS}) AS n;
    INSERT INTO token (id, secret_hash, scope, node, created_by)
    SELECT 't' || n, '', 'node', 'node-' || n, 'p' FROM generate_series(1, {ROWS}) AS n;
    INSERT INTO join_token (id, secret_hash, created_by, expires_at)
    SELECT 't' || n, '', 'p', now() FROM generate_series(1, {ROWS}) AS n;
    ANALYZE;
"""


class Observed:
    """The plan of each statement that runs, asked for just before it runs, and how often it ran."""

    def __init__(self, database: Database) -> None:
        self.plans: dict[str, str] = {}
        self.runs: list[str] = []
        event.listen(database.engine, "before_cursor_execute", self._explain)

    def _explain(self, _conn: Connection, cursor: Any, sql: str, parameters: Any, context: Any, _many: bool) -> None:
        name = context.execution_options.get("statement", sql)
        self.runs.append(name)
        if sql.lstrip().startswith("/*"):
            beside = cursor.connection.cursor()
            beside.execute(f"EXPLAIN {sql}", parameters)
            plan = "\n".join(line for (line,) in beside.fetchall())
            self.plans[name] = self.plans.get(name, "") + plan + "\n"


@pytest.fixture(scope="module")
def database(postgres: DatabaseServer) -> Iterator[Database]:
    url = postgres.create()
    with psycopg.connect(url) as connection:
        connection.execute(SEED.encode())
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM ANALYZE")
    database = Database(url, pool_size=2, direct=True)
    yield database
    database.close()
    postgres.drop(url)


@pytest.fixture
def observed(database: Database) -> Observed:
    return Observed(database)


def world_of(count: int, mark: str) -> list[Manifest]:
    documents = [
        gpu_type(f"{mark}-gpu"),
        model(mark),
        profile(mark, f"{mark}-gpu"),
        *(service(f"{mark}-{n}", mark, mark) for n in range(count)),
    ]
    manifests, faults = validate([Document(str(n), document) for n, document in enumerate(documents)])
    assert not faults
    return manifests


@pytest.mark.slow
def test_every_statement_of_the_world_uses_an_index_on_a_hundred_thousand_rows(
    database: Database, observed: Observed
) -> None:
    exercise(database)
    scans = {
        name: plan
        for name, plan in observed.plans.items()
        if any(f"Seq Scan on {table}\n" in plan + "\n" or f"Seq Scan on {table} " in plan for table in LARGE)
    }
    assert not scans, "\n\n".join(f"{name}:\n{plan}" for name, plan in scans.items())
    named = {
        value.get_execution_options()["statement"]
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, TextClause)
    }
    assert named <= set(observed.plans), f"not exercised here: {named - set(observed.plans)}"


def exercise(database: Database) -> None:
    """Everything the store is asked in a day."""
    for selection in (
        Selection(Kind.SERVICE),
        Selection(Kind.SERVICE, tenant="tenant-7"),
        Selection(Kind.SERVICE, has=("label:team=6",)),
        Selection(Kind.SERVICE, has=("spec.model=model-6", "label:team=6"), lacks=("metadata.name=6",)),
        Selection(Kind.MODEL, admitting="tenant-7"),
    ):
        database.read(lambda c, s=selection: objects.page(c, s, ("tenant-3", "Service-9"), 101))  # type: ignore[misc]
    database.read(lambda c: objects.get(c, Key(Kind.SERVICE, "tenant-1", "Service-1")))
    database.read(lambda c: objects.names(c, Kind.MODEL, "tenant-1"))
    database.read(lambda c: objects.read_capped_nodes(c, ["a100", "planned"]))
    database.read(lambda c: changes.read_changes_after(c, ROWS - 50, ROWS, [Kind.SERVICE], "tenant-7", 500))
    database.read(lambda c: changes.read_changes_after(c, 0, ROWS, [Kind.SERVICE, Kind.JOB], "", 500))
    database.read(versions.current)
    database.read(lambda c: audit.page(c, 2**62, 101))
    database.read(lambda c: audit.get(c, 7))
    database.read(lambda c: audit.describe_last_act(c, ["Policy"], timedelta(minutes=1)))
    database.read(lambda c: tokens.find_live(c, "t7"))
    database.read(lambda c: tokens.node_has_token(c, "node-7"))
    database.read(lambda c: tokens.live_ids(c, ["t7", "t8"]))
    database.read(lambda c: tokens.labels(c, ["t7", "t8"]))
    database.write(lambda c: tokens.lock_maker(c, "person:7/console"))
    database.read(lambda c: tokens.list_live_of(c, "person:7/console"))
    database.read(lambda c: tokens.name_maker(c, "t7"))
    database.read(lambda c: tokens.page(c, "t7", 101))
    declared = world_of(3, "planned")
    database.write(lambda c: declare.declare(c, ACTOR, declared, applied_as=ObjectSet("s")))
    narrower = [m for m in declared if m.kind is Kind.MODEL]
    narrower[0] = replace(narrower[0], spec={**narrower[0].spec, "tenants": ["planned"]})
    database.write(lambda c: declare.declare(c, ACTOR, narrower))
    database.write(lambda c: declare.declare(c, ACTOR, declared[:4], applied_as=ObjectSet("s", prune=True)))
    database.write(lambda c: declare.delete(c, ACTOR, declared[3].key))
    tenant = validate([Document("t", manifest("Tenant", "tenant-x", {}))])[0]
    database.write(lambda c: declare.declare(c, ACTOR, tenant))
    database.write(lambda c: declare.delete(c, ACTOR, tenant[0].key))
    database.write(credentials)
    database.read(lambda c: objects.count_of_tenants(c, ["tenant-7"]))
    database.write(lambda c: changes.prune(c, 0.0, 100))
    database.write(lambda c: change_counts.add(c, "tenant x", 1))
    database.write(change_counts.forget)
    database.write(lambda c: audit.forget(c, 400 * 86_400.0, 100))
    database.write(lambda c: tokens.forget(c, 100))
    database.write(lambda c: join_tokens.forget(c, 100))
    database.write(lambda c: idempotency.prune(c, 10.0, 100))


def credentials(connection: Connection) -> None:
    tokens.insert(
        connection,
        tokens.TokenDraft(id="x", secret_hash=b"", scope="viewer", created_by="t"),
    )
    tokens.insert(
        connection,
        tokens.TokenDraft(id="y", secret_hash=b"", scope="node", node="n", created_by="t"),
    )
    assert rotation.make_room(connection, "t9") is None
    rotation.set_successor(connection, "t9", "y")
    assert rotation.take_up(connection, "t9", "y") is not None
    assert rotation.read_replaced_token(connection, "t9") is None
    rotation.forget(connection, 100)
    tokens.revoke(connection, "x")
    tokens.revoke_of_nodes(connection, ["node-7"])
    tokens.touch(connection, [("t7", datetime.now(UTC)), ("t8", datetime.now(UTC))])
    join_tokens.insert(connection, token_id="x", secret_hash=b"", node="", created_by="t", expires_in_seconds=1)
    join_tokens.find(connection, "x")
    join_tokens.lock_for_use(connection, "x")
    join_tokens.use(connection, "x", "node-7")
    join_tokens.page(connection, "t7", 101)
    join_tokens.revoke(connection, "t7")
    assert idempotency.read_answer(connection, "p", "new") is None
    idempotency.keep(connection, "p", "new", idempotency.KeptAnswer(b"", 200, {}, b""), "{}")
    versions.raise_floor(connection, "object", 1)
    versions.leap(connection)


@pytest.mark.slow
def test_declaring_a_hundred_objects_takes_as_many_statements_as_declaring_one(
    database: Database, observed: Observed
) -> None:
    def statements(count: int, mark: str) -> list[str]:
        manifests = world_of(count, mark)
        observed.runs.clear()
        database.write(lambda c: declare.declare(c, ACTOR, manifests))
        return list(observed.runs)

    assert statements(100, "hundred") == statements(1, "single")


@pytest.mark.slow
def test_a_page_of_five_hundred_takes_as_many_statements_as_a_page_of_one(
    database: Database, observed: Observed
) -> None:
    def statements(limit: int) -> list[str]:
        observed.runs.clear()
        database.read(lambda c: objects.page(c, Selection(Kind.SERVICE), ("", ""), limit))
        return list(observed.runs)

    assert statements(500) == statements(1)
