"""Every table that grows has an end: what is old goes by housekeeping, and what is not old the database keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from app.context import Context
from app.housekeeping import Housekeeping
from app.main import assemble
from app.settings import Settings, SettingsError
from app.store.world import events, idempotency
from tests.support.server import Reply, RunningServer, running_server
from tests.support.world import declare_world, service

pytestmark = pytest.mark.slow

AUDIT = "INSERT INTO audit (at, request_id, principal, scope, principal_tenant, verb, outcome, kind, name) VALUES"
USAGE = (
    "INSERT INTO usage_interval (node, id, instance, gpu, gpu_uuid, tenant, service, job, sm_percent, memory_gib, "
    "dedicated, started_at, ended_at, evidence, closed_at) VALUES"
)


@pytest.fixture
def context(database_url: str) -> Iterator[Context]:
    made: Context = assemble(Settings(database_url=database_url, database_direct=True)).state.context
    yield made
    made.parser.close()
    made.database.close()


@pytest.fixture
def housekeeping(context: Context) -> Housekeeping:
    return Housekeeping(context)


def run(context: Context, sql: str) -> list[Any]:
    def execute(connection: Any) -> list[Any]:
        result = connection.execute(text(sql))
        return list(result) if result.returns_rows else []

    return context.database.write(execute)


def audited(context: Context, *days: int) -> None:
    for age in days:
        run(context, f"{AUDIT} (now() - interval '{age} days', '', '', '', '', 'd{age}', 'done', 'Node', 'n')")


def used(context: Context, days: int, evidence: str = "observed") -> None:
    ended = f"now() - interval '{days} days'"
    run(
        context,
        f"{USAGE} ('n', 'u{days}', 'i', 0, '', 'shop', 's', '', 30, 1, false, {ended} - interval '1 hour', {ended}, "
        f"'{evidence}', {ended})",
    )


def test_old_entries_of_the_audit_go_and_the_database_keeps_the_others(
    context: Context, housekeeping: Housekeeping
) -> None:
    audited(context, 500, 401, 399, 1)
    housekeeping.prune()
    assert run(context, "SELECT verb FROM audit ORDER BY id") == [("d399",), ("d1",)]
    for sql in ("DELETE FROM audit WHERE verb = 'd1'", "UPDATE audit SET verb = ''", "TRUNCATE audit"):
        with pytest.raises(DatabaseError, match="append-only"):
            run(context, sql)
    with pytest.raises(SettingsError, match="audit_retention_days 30 is under 90"):
        Settings(audit_retention_days=30)


def test_usage_beyond_every_correction_goes_with_what_was_said_of_it_and_the_other_stays(
    context: Context, housekeeping: Housekeeping
) -> None:
    for days in (600, 431, 429, 1):
        used(context, days)
    used(context, 500, "gap")  # its agent named it again since: it goes on
    run(context, "INSERT INTO usage_truth VALUES ('n', 'u500', now() - interval '499 days', NULL, 'named')")
    run(context, "INSERT INTO usage_truth VALUES ('n', 'u600', now() - interval '599 days', NULL, 'named')")
    run(context, "INSERT INTO usage_truth VALUES ('n', 'gone', now() - interval '599 days', NULL, 'named')")
    for age in ("now() - interval '500 days'", "now()", "NULL"):
        run(
            context,
            "INSERT INTO assigned SELECT 'n', 'i' || count(*), 0, 'shop', 's', '', 30, 1, false, "
            f"now() - interval '600 days', {age} FROM assigned",
        )
    housekeeping.drop_old_partitions()
    assert run(context, "SELECT id FROM usage_interval ORDER BY id") == [("u1",), ("u429",), ("u500",), ("u600",)]
    assert run(context, "SELECT id FROM usage_truth ORDER BY id") == [("u500",), ("u600",)]
    assert run(context, "SELECT instance FROM assigned ORDER BY instance") == [("i1",), ("i2",)]
    with pytest.raises(DatabaseError, match="opened once and closed once"):
        run(context, "DELETE FROM usage_interval WHERE id = 'u429'")
    run(context, "INSERT INTO usage_truth VALUES ('n', 'u1', now(), now(), 'observed')")
    with pytest.raises(DatabaseError, match="never changed"):
        run(context, "DELETE FROM usage_truth WHERE id = 'u1'")


def test_tokens_that_ended_long_ago_go_but_no_node_loses_its_name(context: Context, housekeeping: Housekeeping) -> None:
    ended = "now() - interval '91 days'"
    values = [
        ("revoked", "viewer", "", "NULL", ended),
        ("expired", "viewer", "", ended, "NULL"),
        ("valid", "viewer", "", "NULL", "NULL"),
        ("lately", "viewer", "", "NULL", "now()"),
        ("away", "node", "n", ended, "NULL"),
        ("left", "node", "n", ended, ended),
    ]
    for name, scope, node, expires, revoked in values:
        run(
            context,
            "INSERT INTO token (id, secret_hash, scope, node, created_by, expires_at, revoked_at) "
            f"VALUES ('{name}', '', '{scope}', '{node}', '', {expires}, {revoked})",
        )
    for name, expires in (("old", ended), ("new", "now() + interval '1 hour'")):
        run(
            context,
            "INSERT INTO join_token (id, secret_hash, created_by, expires_at) "
            f"VALUES ('{name}', '', '', {expires})",
        )  # fmt: skip
    housekeeping.prune()
    assert run(context, "SELECT id FROM token ORDER BY id") == [("away",), ("lately",), ("valid",)]
    assert run(context, "SELECT id FROM join_token") == [("new",)]


def test_case_30_of_events_and_answers_the_newest_are_kept_and_each_tenant_displaces_its_own(
    context: Context, housekeeping: Housekeeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_EVENTS", 3)
    monkeypatch.setattr(events, "MOST_TENANT_EVENTS", 2)
    monkeypatch.setattr(idempotency, "MOST_ANSWERS", 3)
    of_each = {"": 9, "lab": 1, "shop": 9}  # the quiet tenant wrote first
    for who, count in sorted(of_each.items(), key=lambda item: item[1]):
        for number in range(1, count + 1):
            run(
                context,
                "INSERT INTO event (at, last_at, reason, tenant, message, fingerprint) "
                f"VALUES (now(), now(), 'planned', '{who}', '{number}', '')",
            )
            run(
                context,
                "INSERT INTO idempotency (principal, key, request_hash, status, headers, body, created_at) VALUES "
                f"('{who}', '{number}', '', 200, '{{}}', '', now() - {60 - number} * interval '1 minute')",
            )
    housekeeping.prune()
    assert run(context, "SELECT tenant, array_agg(message ORDER BY id) FROM event GROUP BY 1 ORDER BY 1") == [
        ("", ["7", "8", "9"]), ("lab", ["1"]), ("shop", ["8", "9"]),
    ]  # fmt: skip
    assert run(context, "SELECT principal, array_agg(key ORDER BY key) FROM idempotency GROUP BY 1 ORDER BY 1") == [
        ("", ["7", "8", "9"]), ("lab", ["1"]), ("shop", ["7", "8", "9"]),
    ]  # fmt: skip


def test_large_answers_of_a_token_make_room_for_its_newer_ones(
    context: Context, housekeeping: Housekeeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "MOST_ANSWER_BYTES", 250)
    for who in ("other", "shop"):
        for number in range(1, 5 if who == "shop" else 2):
            run(
                context,
                "INSERT INTO idempotency (principal, key, request_hash, status, headers, body, created_at) VALUES "
                f"('{who}', '{number}', '', 200, '{{}}', convert_to(repeat('x', 100), 'UTF8'), "
                f"now() - interval '1 hour' + {number} * interval '1 minute')",
            )
    housekeeping.prune()
    kept = run(context, "SELECT principal, key FROM idempotency ORDER BY 1, 2")
    assert kept == [("other", "1"), ("shop", "3"), ("shop", "4")]


def test_the_counts_of_changes_go_after_two_days(context: Context, housekeeping: Housekeeping) -> None:
    for days in (0, 1, 2):
        run(context, f"INSERT INTO change_count VALUES ('t', CAST(now() AT TIME ZONE 'UTC' AS date) - {days}, {days})")
    housekeeping.prune()
    assert run(context, "SELECT units FROM change_count WHERE units > 1") == []


def test_costs_of_days_and_savings_of_hours_end(context: Context, housekeeping: Housekeeping) -> None:
    for days in (3700, 10):
        moment = f"now() - interval '{days} days'"
        run(
            context,
            "INSERT INTO cost_day VALUES "
            f"({moment}, 'n', 0, 1, 'l4', '', 'onDemand', 'shop', 's', '', '', 'used', 'measured', 1, 1, NULL)",
        )
    for days in (500, 10):
        moment = f"now() - interval '{days} days'"
        run(context, f"INSERT INTO saving VALUES ({moment}, 'shop', 1, 1, 1, 1, 1, 1)")
        run(context, f"INSERT INTO release_hour VALUES ({moment}, 'l4', '', 'onDemand', 2, 1, 1)")
    housekeeping.drop_old_partitions()
    for table in ("cost_day", "saving", "release_hour"):
        assert run(context, f"SELECT count(*) FROM {table}") == [(1,)], table


def test_a_node_deleted_a_day_ago_leaves_no_assignment_but_the_highest_epoch(
    context: Context, housekeeping: Housekeeping
) -> None:
    for number, epoch in enumerate((1, 2, 3)):
        run(context, f"INSERT INTO assignment VALUES ('n{number}', {epoch}, 1, {number + 1}, '{{}}', now())")
        run(
            context,
            f"INSERT INTO node_state VALUES ('n{number}', 1, now() - interval '2 days', now(), '', 'ok', '', 1, 1, 1)",
        )
    housekeeping.prune()
    assert run(context, "SELECT node FROM assignment") == [("n2",)]


@pytest.fixture
def server(database_url: str) -> Iterator[RunningServer]:
    with running_server(database_url, GPUWRIGHT_DATABASE_DIRECT="1", GPUWRIGHT_TENANT_OBJECTS="3") as running:
        declare_world(running)
        yield running


def test_a_tenant_with_as_many_objects_as_it_may_have_adds_none(server: RunningServer) -> None:
    many = [service(f"more-{number}", "shop") for number in range(3)]
    refused = server.request("POST", "/api/v1/apply", many)
    assert refused.status == 409
    assert "tenant shop would have 4 services and jobs, and may have 3" in refused.json["detail"]
    assert server.request("POST", "/api/v1/apply?set=s", many[:2]).status == 200
    assert server.request("PUT", "/api/v1/services/shop/more-2", many[2]).status == 409
    assert server.request("PUT", "/api/v1/services/shop/more-1", service("more-1", "shop", priority=7)).status == 200
    assert server.request("PUT", "/api/v1/services/lab/more-2", service("more-2", "lab")).status == 201
    pruned = server.request("POST", "/api/v1/apply?set=s&prune=true", [service("new", "shop"), many[1]])
    assert pruned.status == 200, "what goes makes room for what comes"


def test_case_30_a_tenant_that_used_up_its_changes_of_a_day_is_refused_further_ones_and_nobody_else_is(
    server: RunningServer,
) -> None:
    def put(name: str, tenant: str, token: str, query: str = "") -> Reply:
        return server.request("PUT", f"/api/v1/services/{tenant}/{name}{query}", service(name, tenant), token=token)

    shop, lab = (server.token("operator", tenant=tenant) for tenant in ("shop", "lab"))
    assert [put("first", "lab", lab).status, put("first", "lab", lab).status] == [201, 200]
    with psycopg.connect(server.database_url) as connection:
        counted = connection.execute("SELECT sum(units) FROM change_count WHERE account = 'tenant lab'").fetchall()
        assert counted == [(1,)], "the second time nothing changed"
        for days in (0, 1):  # today and, should midnight pass in this test, tomorrow
            connection.execute(
                "INSERT INTO change_count VALUES ('tenant shop', CAST(now() AT TIME ZONE 'UTC' AS date) + %s, 20000)",
                [days],
            )
    refused = put("new", "shop", shop)
    assert refused.status == 429
    assert refused.json["detail"].startswith("tenant shop may make 20,000 changes a day, and with this request it ")
    assert int(refused.headers["retry-after"]) > 0
    assert server.request("GET", "/api/v1/services/shop/new").status == 404
    assert put("new", "shop", shop, "?dryRun=true").status == 201
    changed = service("first", "lab", priority=7)
    assert server.request("PUT", "/api/v1/services/lab/first", changed, token=lab).status == 200
    assert server.request("PUT", "/api/v1/services/shop/new", service("new", "shop")).status == 201
    assert server.request("DELETE", "/api/v1/services/shop/new", token=shop).status == 429


def test_a_large_change_counts_as_several(server: RunningServer) -> None:
    lab = server.token("operator", tenant="lab")
    labels = {f"key-{number}": "x" * 60 for number in range(60)}
    large = service("large", "lab")
    large["metadata"]["labels"] = labels
    for _ in range(2):
        server.request("PUT", "/api/v1/services/lab/large", large, token=lab)
        large["metadata"]["labels"] = labels | {"one": "more"}
    with psycopg.connect(server.database_url) as connection:
        [(units,)] = connection.execute("SELECT sum(units) FROM change_count WHERE account = 'tenant lab'").fetchall()
    assert units == 3, "the first writes 5 KB, the second 10 KB"
