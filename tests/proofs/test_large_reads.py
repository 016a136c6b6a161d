"""FAILURES 20: the heavy reads of a large world with a plan and loads, guarded by the rows that they read."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import msgspec
import psycopg
import pytest

from app.access import Principal, Scope
from app.api.answers import overview
from app.api.answers.recent import Recent
from app.api.plans import plan_wire
from app.console.data import read_fleet
from app.control.tell.window_cache import WindowCache
from app.store.database import lease
from app.store.database.database import Database
from app.store.fleet import loads
from app.store.plans import plan_reads, plans
from app.store.plans.plans import PlanDraft
from app.store.world import events
from app.store.world.events import EventFilter
from app.store.world.slos import slos
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance
from tests.support.patience import until
from tests.support.postgres import DatabaseServer
from tests.support.rows_read import rows_read

TENANTS = 20
SERVICES_EACH = 40
HOURS = 48
MINUTES = 30
EVENTS = 20_000
PLANS = 2_000
NODES = 10_000
OWN = SERVICES_EACH * (HOURS + MINUTES)  # rows of loads of a tenant
LARGE = {"object", "service_load", "service_load_hour", "event", "plan", "own_plan"}
SEED = f"""
    INSERT INTO object
    SELECT gen_random_uuid(), 'Service', 't' || tenant, 's' || n, '{{}}',
           '{{"model": "m", "slo": {{"latencyMs": 80, "percentile": 98}}, "ratePerSecond": 9}}', '{{}}', 1,
           tenant * 1000 + n, NULL, '{{}}', now(), now()
    FROM generate_series(1, {TENANTS}) AS tenant, generate_series(1, {SERVICES_EACH}) AS n;
    INSERT INTO object
    SELECT gen_random_uuid(), 'Node', '', 'node-' || n, '{{}}', '{{"gpuType": "v100-16gb", "gpus": 1}}', '{{}}', 1,
           100000 + n, NULL, '{{}}', now(), now()
    FROM generate_series(0, {NODES} - 1) AS n;
    INSERT INTO service_load_hour
    SELECT tenant, name, date_trunc('hour', now()) - hour * interval '1 hour', 3600, 9000, 9000, 1, 2
    FROM object, generate_series(3, {HOURS} + 2) AS hour WHERE kind = 'Service';
    INSERT INTO service_load (tenant, service, at, seconds, requests, answers)
    SELECT tenant, name, now() - minute * interval '1 minute', 60, 540, 540
    FROM object, generate_series(1, {MINUTES}) AS minute WHERE kind = 'Service';
    INSERT INTO event (at, last_at, reason, severity, kind, tenant, name, message, fingerprint)
    SELECT now() - n * interval '1 minute', now() - n * interval '1 minute', 'unserved', 'warning', 'Service',
           CASE WHEN n % 200 = 7 THEN 't7' ELSE 't' || 1 + n % 6 END, 's' || n % 40, '',
           decode(lpad(to_hex(n), 32, '0'), 'hex')
    FROM generate_series({EVENTS}, 1, -1) AS n;
    INSERT INTO plan (generation, epoch, at, lane, state, snapshot, body, desired, services)
    SELECT n, 1, now() - ({PLANS} - n) * interval '1 minute', 'full', 'superseded', '[]', '', '',
           CASE WHEN n % 500 = 7 THEN ARRAY['t1/s1', 't7/s1'] ELSE ARRAY['t1/s1', 't2/s3'] END
    FROM generate_series(1, {PLANS}) AS n;
    INSERT INTO plan (generation, epoch, at, lane, state, snapshot, body, desired)
    SELECT n, 1, now() + n * interval '1 minute', 'full', 'advisory', '[]', '', ''
    FROM generate_series({PLANS} + 10, 2 * {PLANS}) AS n;
    UPDATE lease SET generation = {PLANS};
"""


@pytest.fixture(scope="module")
def database(postgres: DatabaseServer) -> Iterator[Database]:
    url = postgres.create()
    database = Database(url, pool_size=6, direct=True)
    epoch = database.write(lambda connection: lease.take(connection, "a planner", 1e6))
    assert epoch is not None
    with psycopg.connect(url) as reader, psycopg.connect(url) as connection:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT pg_current_xact_id()")  # so VACUUM leaves the rows as not visible to all
        connection.execute(SEED.encode())
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM ANALYZE")
    services = [f"t{tenant}/s{n}" for tenant in range(1, TENANTS + 1) for n in range(1, SERVICES_EACH + 1)]
    instances = tuple(
        Instance(f"{name}/1", name, f"node-{at}", 0, "fp16", 8, 5.0, 50, 4.0, 1500.0, 9.0)
        for at, name in enumerate(services)
    )
    body = msgspec.json.encode(Plan(instances))
    draft = PlanDraft("full", "done", body, b"{}", [b"{}"], services=services)
    assert database.write(lambda connection: plans.record(connection, epoch, draft)) == PLANS + 1
    with psycopg.connect(url) as connection:  # prices come from the snapshot, which is no longer stored
        connection.execute("UPDATE plan SET snapshot = '[\"00\"]' WHERE services <> '{}'")
    yield database
    database.close()
    postgres.drop(url)


@pytest.mark.slow
def test_case_20_a_tenants_page_reads_its_own_part_of_the_loads(database: Database) -> None:
    who = Principal("viewer", Scope.VIEWER, tenant="t7")
    with rows_read(database) as found:
        counted = WindowCache().read(database, who.tenant)
        data = database.read(lambda connection: read_fleet(connection, who.tenant, counted))
    assert len(data.services) == len(data.nodes) == SERVICES_EACH
    assert data.services[0]["attained"] is not None
    assert found.total < 4 * OWN, found.rows
    assert not {table for _, table in found.whole_tables} & LARGE, found.whole_tables


def test_case_20_slo_and_overview_of_a_tenant_read_its_own_part_of_the_loads(database: Database) -> None:
    with rows_read(database) as found:
        counted = WindowCache().read(database, "t7")
        assert len(database.read(lambda connection: slos(connection, "t7"))) == SERVICES_EACH
        whole = database.read(lambda connection: overview._whole(connection, "t7", counted))
    assert len(whole["services"]) == len(counted) == SERVICES_EACH
    assert found.total < 4 * OWN, found.rows
    assert not {table for _, table in found.whole_tables} & LARGE, found.whole_tables


@pytest.mark.slow
def test_case_20_the_whole_overview_reads_each_load_once_and_then_only_what_is_new(database: Database) -> None:
    cache = WindowCache()
    with rows_read(database) as found:
        counted = cache.read(database)
        database.read(lambda connection: overview._whole(connection, "", counted))
    assert found.runs["answered_in_windows"] == 1
    assert found.rows["answered_in_windows"] <= TENANTS * OWN
    others = found.total - found.rows["answered_in_windows"]
    assert others < 6 * TENANTS * SERVICES_EACH, found.rows


def test_case_20_of_many_that_ask_for_the_sums_at_once_one_sums(database: Database, postgres: DatabaseServer) -> None:
    cache = WindowCache()
    url = database.engine.url.render_as_string(hide_password=False).replace("+psycopg", "")
    with psycopg.connect(url) as blocker, rows_read(database) as found:
        blocker.execute("LOCK TABLE service_load_hour IN ACCESS EXCLUSIVE MODE")
        readers = [threading.Thread(target=cache.read, args=[database]) for _ in range(8)]
        for reader in readers:
            reader.start()
        sql = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'service_load_hour'::regclass"
        until(lambda: blocker.execute(sql).fetchone() == (1,), "one of them sums")
        blocker.rollback()
        for reader in readers:
            reader.join()
    assert found.runs["answered_in_windows"] == 1


def test_case_20_a_page_of_a_tenants_plans_reads_no_others(database: Database) -> None:
    with rows_read(database) as found:
        page = database.read(lambda connection: plan_reads.page(connection, 2**62, 3, "t7"))
    assert [row["generation"] for row in page] == [PLANS + 1, 1507, 1007]
    assert found.total <= 12, found.rows


def test_case_20_the_plan_in_force_is_found_among_those_that_are_only_shown(database: Database) -> None:
    with rows_read(database) as found:
        assert database.read(plan_reads.read_generation_in_force) == PLANS + 1
        database.read(lambda connection: plan_reads.page(connection, 2**62, 5, "t1"))
        database.read(plans.read_proven_shapes)
    assert found.total <= 30, found.rows


@pytest.mark.parametrize("tenant", ["t7", ""])
def test_case_20_a_page_of_events_reads_no_others(database: Database, tenant: str) -> None:
    wanted = EventFilter(tenant=tenant)
    with rows_read(database) as found:
        page = database.read(lambda connection: events.recent(connection, wanted, 50))
    assert len(page) == 50
    assert found.total <= 110, found.rows
    older = EventFilter(tenant=tenant, before=page[-1].id)
    with rows_read(database) as found:
        assert len(database.read(lambda connection: events.recent(connection, older, 50))) == 50
    assert found.total <= 110, found.rows


def test_case_20_a_plan_is_decoded_once_for_many_pages(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_wire, "_decoded", Recent())
    with rows_read(database) as found:
        bodies = [database.read(lambda connection: plan_wire.body(connection, PLANS + 1)) for _ in range(5)]
    assert all(body and len(body["instances"]) == TENANTS * SERVICES_EACH for body in bodies)
    assert found.runs["get_pieces"] == 1


def test_the_sums_of_a_tenant_are_those_of_all_for_its_services(database: Database) -> None:
    whole = database.read(loads.count_in_windows)
    own = database.read(lambda connection: loads.count_in_windows(connection, "t7"))
    assert own == {name: sums for name, sums in whole.items() if name.startswith("t7/")}
    assert whole["t7/s1"]["30d"][0] > 0
