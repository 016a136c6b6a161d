"""Stores what a fleet leaves behind in a month: services, their loads, events, and a plan in force."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, text

from app.store.database import lease
from app.store.database.database import Database
from app.store.plans import plans
from app.store.plans.plans import PlanDraft
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance

TENANTS = 20
DAYS = 30
RECENT_HOURS = 2
BUCKET_SECONDS = 10
GPUS = 8
# Services with a month of hours and two hours of buckets each, as a planner of such a fleet leaves them.
WORLD = f"""
    INSERT INTO object
    SELECT gen_random_uuid(), 'Service', 'tenant-' || n % {TENANTS}, 'search-' || n, '{{}}',
           '{{"model": "resnet50", "slo": {{"latencyMs": 80, "percentile": 98}}, "ratePerSecond": 90}}', '{{}}', 1, n,
           NULL, '{{}}', now(), now()
    FROM generate_series(1, CAST(:services AS int)) AS n;
    INSERT INTO service_load_hour
    SELECT tenant, name, date_trunc('hour', now()) - hour * interval '1 hour', 3600, 324000, 324000, 10, 500
    FROM object, generate_series({RECENT_HOURS}, {24 * DAYS}) AS hour WHERE kind = 'Service';
    INSERT INTO service_load (tenant, service, at, seconds, requests, answers)
    SELECT tenant, name, now() - n * interval '{BUCKET_SECONDS} seconds', {BUCKET_SECONDS}, 900, 900
    FROM object, generate_series(1, {RECENT_HOURS * 3600 // BUCKET_SECONDS}) AS n WHERE kind = 'Service';
    INSERT INTO event (at, last_at, reason, severity, kind, tenant, name, message, fingerprint)
    SELECT now() - n * interval '1 minute', now() - n * interval '1 minute', 'unserved', 'warning', 'Service',
           'tenant-' || n % {TENANTS}, 'search-' || n, 'a request a second', decode(lpad(to_hex(n), 32, '0'), 'hex')
    FROM generate_series(10000, 1, -1) AS n
"""  # noqa: S608 (constants)
# As of a plan whose snapshot is no longer stored: prices are left out.
NO_SNAPSHOT = "UPDATE plan SET snapshot = '[\"00\"]'"


def store_past_month(database_url: str, nodes: Sequence[str], services: int) -> None:
    """Fills a migrated database whose lease is free."""
    database = Database(database_url, pool_size=1, direct=True)
    try:
        epoch = database.write(lambda connection: lease.take(connection, "history", 1e6))
        assert epoch is not None, "a planner holds the lease"

        def fill(connection: Connection) -> None:
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            for sql in WORLD.split(";"):
                connection.execute(text(sql), {"services": services} if ":services" in sql else {})
            plans.record(connection, epoch, _plan(nodes, services))
            connection.execute(text(NO_SNAPSHOT))

        database.write(fill)
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
    finally:
        database.close()


def _plan(nodes: Sequence[str], services: int) -> PlanDraft:
    names = [f"tenant-{n % TENANTS}/search-{n}" for n in range(1, services + 1)]
    instances = []
    for at, name in enumerate(names):
        turn, node = divmod(at, len(nodes))
        place = (nodes[node], turn % GPUS)
        instances.append(Instance(f"{name}/1", name, *place, "fp16", 8, 5.0, 50, 4.0, 1410.0, 90.0))
    body = msgspec.json.encode(Plan(tuple(instances)))
    return PlanDraft("full", "done", body, b"{}", [], services=names)
