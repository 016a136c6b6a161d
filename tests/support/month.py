"""A fleet's usage for days on end, made up and loaded in bulk; and accounted for by the real ledger."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import psycopg

from app.ledger import keeping
from app.nodes.pace import WorkPace
from app.store.database import partitions
from app.store.database.database import Database
from app.store.database.urls import libpq_url

BEGINS = datetime(2026, 3, 1, tzinfo=UTC)
GPUS_OF_A_NODE = 8
TYPES = {"a100-sxm4-80gb": (80.0, 3_200_000_000), "l4-24gb": (24.0, 800_000_000), "t4-16gb": (16.0, 350_000_000)}
USAGE = (
    "node", "id", "instance", "gpu", "gpu_uuid", "tenant", "service", "job", "model", "sm_percent", "memory_gib",
    "dedicated", "started_at", "ended_at", "evidence", "opened_at", "closed_at",
)  # fmt: skip

# All of it as it was assigned.
ASSIGNED = """
    INSERT INTO assigned
    SELECT node, instance, gpu, tenant, service, job, max(sm_percent), max(memory_gib), bool_or(dedicated),
           min(started_at)
    FROM usage_interval WHERE node = ANY(%s) GROUP BY node, instance, gpu, tenant, service, job
"""


@dataclass(frozen=True)
class Fleet:
    """How much there is of everything; what it does is drawn by the seed."""

    days: int = 30
    gpus: int = 1000
    instances: int = 3000
    services: int = 300
    tenants: int = 20
    shapes_a_day: int = 110  # of each instance: resizes and hand-overs; 0: it keeps its shape
    seed: int = 1
    begins: datetime = BEGINS

    @property
    def ends(self) -> datetime:
        return self.begins + timedelta(days=self.days)

    @property
    def nodes(self) -> list[str]:
        return [f"node-{number:04}" for number in range(-(-self.gpus // GPUS_OF_A_NODE))]


def load(url: str, fleet: Fleet) -> int:
    """Prices, GPUs and usage of the whole time, nothing of it accounted for yet; how many intervals."""
    database = Database(url, pool_size=1, direct=True)
    days = [fleet.begins + timedelta(days=day) for day in range(fleet.days + 2)]
    database.write(lambda connection: partitions.ensure(connection, days, daily=()))
    database.close()
    kinds = list(TYPES)
    with psycopg.connect(libpq_url(url)) as connection, connection.cursor() as cursor:
        for name, (_, nano) in TYPES.items():
            cursor.execute(
                "INSERT INTO price (gpu_type, region, purchase, nano_per_hour, valid_from)"
                " VALUES (%s, 'default', 'onDemand', %s, %s)",
                (name, nano, fleet.begins),
            )
        for number, node in enumerate(fleet.nodes):
            kind = kinds[number % len(kinds)]
            gpus = min(GPUS_OF_A_NODE, fleet.gpus - number * GPUS_OF_A_NODE)
            cursor.execute(
                "INSERT INTO gpu_owned (node, gpus, gpu_type, region, purchase, memory_gib, valid_from)"
                " VALUES (%s, %s, %s, 'default', 'onDemand', %s, %s)",
                (node, gpus, kind, TYPES[kind][0], fleet.begins),
            )
        cursor.execute(
            "INSERT INTO ledger_node (node, allocated_until) SELECT unnest(%s::text[]), %s", (fleet.nodes, fleet.begins)
        )
        cursor.execute(
            "INSERT INTO node_state SELECT unnest(%(nodes)s::text[]), 1, %(end)s, %(end)s, '', 'ok', '', 0, 0, 0",
            {"nodes": fleet.nodes, "end": fleet.ends + timedelta(hours=1)},
        )
        count = 0
        with cursor.copy(f"COPY usage_interval ({', '.join(USAGE)}) FROM STDIN") as copy:
            for row in intervals(fleet):
                copy.write_row(row)
                count += 1
        cursor.execute(ASSIGNED, (fleet.nodes,))
    with psycopg.connect(libpq_url(url), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE usage_interval, assigned")
    return count


def intervals(fleet: Fleet) -> Iterator[tuple[object, ...]]:
    """Each instance stays on its GPU, and takes another shape again and again."""
    rng = random.Random(fleet.seed)
    mean = 86_400 / fleet.shapes_a_day if fleet.shapes_a_day else float("inf")
    for number in range(fleet.instances):
        place = number % fleet.gpus
        node, gpu = fleet.nodes[place // GPUS_OF_A_NODE], place % GPUS_OF_A_NODE
        service = rng.randrange(fleet.services)
        tenant, model = f"tenant-{service % fleet.tenants}", f"model-{service % 40}"
        at, shape = 0.0, 0
        while at < fleet.days * 86_400:
            until = min(at + rng.uniform(0.2, 1.8) * mean, fleet.days * 86_400.0)
            start, stop = fleet.begins + timedelta(seconds=at), fleet.begins + timedelta(seconds=until)
            yield (
                node, f"i-{number}.{shape}", f"i-{number}", gpu, "", tenant, f"service-{service}", "", model,
                float(rng.randrange(5, 36)), rng.randrange(10, 60) / 10, False, start, stop, "observed", start, stop,
            )  # fmt: skip
            at, shape = until, shape + 1


def load_accounted(url: str, fleet: Fleet) -> int:
    """The same fleet in steady shapes, with its allocations and their sums written by SQL; how many allocations.

    As the real ledger would write them, but that what rounding leaves is all of the idle: at most 3 billionths a slice.
    """
    steady = replace(fleet, shapes_a_day=0)
    load(url, steady)
    with psycopg.connect(libpq_url(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SET work_mem = '256MB'")
        cursor.execute(STEADY, {"begins": fleet.begins, "ends": fleet.ends})
        cursor.execute(STEADY_ALLOCATIONS, {"begins": fleet.begins, "ends": fleet.ends})
        count = cursor.rowcount
        for table, period in (("cost_hour", "hour"), ("cost_day", "day")):
            cursor.execute(STEADY_SUMS.format(table=table, period=period).encode())
        cursor.execute("UPDATE ledger_node SET allocated_until = %s", (fleet.ends,))
    with psycopg.connect(libpq_url(url), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE allocation, cost_hour, cost_day")
    return count


STEADY = """
    CREATE TEMP TABLE holder ON COMMIT DROP AS
    WITH held AS (
        SELECT node, gpu, owned.id AS owned, gpu_type, region, purchase, instance, tenant, service, usage.model,
               nano_per_hour, CAST(sm_percent / 100 AS numeric) AS sm,
               CAST(usage.memory_gib AS numeric) / CAST(owned.memory_gib AS numeric) AS memory
        FROM usage_interval AS usage JOIN gpu_owned AS owned USING (node) JOIN price USING (gpu_type, region, purchase)
    ), paid AS (
        SELECT node, gpu, least(1, greatest(sum(sm), sum(memory))) / sum(greatest(sm, memory)) AS part
        FROM held GROUP BY node, gpu
    )
    SELECT node, gpu, owned, gpu_type, region, purchase, instance, tenant, service, model, 'used' AS kind,
           floor(nano_per_hour / 4 * part * greatest(sm, memory)) AS nano,
           floor(900000000 * part * greatest(sm, memory)) AS microseconds, nano_per_hour
    FROM held JOIN paid USING (node, gpu);
    INSERT INTO holder
    SELECT node, gpu, owned, gpu_type, region, purchase, '', '', '', '', 'idle', nano_per_hour / 4 - sum(nano),
           900000000 - sum(microseconds), nano_per_hour
    FROM holder GROUP BY node, gpu, owned, gpu_type, region, purchase, nano_per_hour;
    INSERT INTO holder
    SELECT node, gpu, owned.id, gpu_type, region, purchase, '', '', '', '', 'unallocated', nano_per_hour / 4, 900000000,
           nano_per_hour
    FROM gpu_owned AS owned JOIN price USING (gpu_type, region, purchase), generate_series(0, gpus - 1) AS gpu
    WHERE NOT EXISTS (SELECT FROM holder WHERE (holder.node, holder.gpu) = (owned.node, gpu))
"""
STEADY_ALLOCATIONS = """
    INSERT INTO allocation (slice, node, gpu, owned, gpu_type, region, purchase, tenant, service, job, model, kind,
                            evidence, gpu_microseconds, nano, energy_mj, instance, correction, written_at)
    SELECT slice, node, gpu, owned, gpu_type, region, purchase, tenant, service, '', model, kind, 'measured',
           microseconds, nano, microseconds / 5000, instance, false, slice
    FROM generate_series(%(begins)s, %(ends)s - interval '1 second', interval '15 minutes') AS slice, holder
    WHERE nano > 0 OR microseconds > 0
"""
STEADY_SUMS = """
    INSERT INTO {table} ({period}, node, gpu, owned, gpu_type, region, purchase, tenant, service, job, model, kind,
                         evidence, gpu_microseconds, nano, energy_mj)
    SELECT date_trunc('{period}', slice, 'UTC'), node, gpu, owned, gpu_type, region, purchase, tenant, service, job,
           model, kind, evidence, sum(gpu_microseconds), sum(nano), sum(energy_mj)
    FROM allocation GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 ORDER BY 1
"""


def account_for(url: str, moment: datetime) -> float:
    """Have the real ledger account for all that is final at the moment; seconds that it took."""
    database = Database(url, pool_size=1, direct=True, moment=lambda: moment)
    started = time.perf_counter()
    keeping.bring_up_to_date(database, WorkPace(0))
    database.close()
    return time.perf_counter() - started
