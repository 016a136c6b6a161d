"""A fixed small history of money, whose sums anyone can check by hand: four hours of four GPUs.

Each hour is the same: a-1/0 costs 4.00 and is held by shop/search (half), the job lab/finetune (a quarter) and nobody;
l-1/0 costs 1.00 and is held by shop/search (60 %) and shop/tags; l-1/1, 1.00, and l-2/0, 0.40, stand empty. The first
hour is the last of October in UTC, and of November already in Berlin.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg

from app.store.database import partitions
from app.store.database.database import Database

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOURS = ("2026-10-31T23:00Z", "2026-11-20T10:00Z", "2026-11-20T11:00Z", "2026-11-21T09:00Z")
A100, L4, SPOT = ("a100", "eu", "onDemand"), ("l4", "eu", "reserved"), ("l4", "eu", "spot")
NONE = ("", "", "", "")
SEARCH, TAGS, FINETUNE = (
    ("shop", "search", "", "resnet50"), ("shop", "tags", "", "clip"), ("lab", "", "finetune", ""),
)  # fmt: skip
KWH = 3_600_000_000  # millijoules
# node, gpu, what it is, who, kind, part of the GPU, cost of an hour, kWh of an hour
SHARES: list[tuple[Any, ...]] = [
    ("a-1", 0, A100, SEARCH, "used", 0.5, 2.00, 0.2),
    ("a-1", 0, A100, FINETUNE, "used", 0.25, 1.00, 0.1),
    ("a-1", 0, A100, NONE, "idle", 0.25, 1.00, 0.1),
    ("l-1", 0, L4, SEARCH, "used", 0.6, 0.60, 0.06),
    ("l-1", 0, L4, TAGS, "used", 0.4, 0.40, 0.04),
    ("l-1", 1, L4, NONE, "unallocated", 1, 1.00, 0.02),
    ("l-2", 0, SPOT, NONE, "unallocated", 1, 0.40, None),
]
# Of each hour: requests and answers in time of shop/search (SLO 98 % in 90 ms), and its minutes below that.
ASKED = ((36_000, 35_640, 0), (36_000, 35_640, 0), (36_000, 34_560, 12), (18_000, 18_000, 0))
ONE_HOUR_US = 3_600_000_000

ALLOCATION = """
    INSERT INTO allocation (slice, node, gpu, owned, gpu_type, region, purchase, tenant, service, job, model, kind,
        evidence, gpu_microseconds, nano, energy_mj, instance, correction, written_at)
    VALUES (%s, %s, %s, 1, %s, %s, %s, %s, %s, %s, %s, %s, 'measured', %s, %s, %s, 'i', false, now())
"""
SUMS = """
    INSERT INTO {table} SELECT date_trunc('{unit}', slice, 'UTC'), node, gpu, owned, gpu_type, region, purchase, tenant,
        service, job, model, kind, evidence, sum(gpu_microseconds), sum(nano), sum(energy_mj)
    FROM allocation GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
"""
SERVICE_HOUR = """
    INSERT INTO service_hour (hour, tenant, service, model, slo_ms, percentile, requests, answers, errors, in_time,
        asked_minutes, violation_minutes, busy_seconds, instance_seconds)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 0, %s, 60, %s, %s, %s)
"""
TENANT = """
    INSERT INTO object (uid, kind, tenant, name, labels, spec, status, generation, resource_version, selectable,
        created_at, updated_at)
    VALUES (gen_random_uuid(), 'Tenant', '', %s, '{}', %s, '{}', 1, 1, '{}', now(), now())
"""
REST = """
    INSERT INTO price (gpu_type, region, purchase, nano_per_hour, valid_from, valid_to) VALUES
        ('a100', 'eu', 'onDemand', 5000000000, '2026-01-01Z', '2026-10-01Z'),
        ('a100', 'eu', 'onDemand', 4000000000, '2026-10-01Z', NULL),
        ('l4', 'eu', 'reserved', 1000000000, '2026-01-01Z', NULL), ('l4', 'eu', 'spot', 400000000, '2026-01-01Z', NULL);
    INSERT INTO gpu_owned (node, gpus, gpu_type, region, purchase, memory_gib, valid_from) VALUES
        ('a-1', 1, 'a100', 'eu', 'onDemand', 80, '2026-01-01Z'), ('l-1', 2, 'l4', 'eu', 'reserved', 24, '2026-01-01Z'),
        ('l-2', 1, 'l4', 'eu', 'spot', 24, '2026-01-01Z');
    INSERT INTO idle_node VALUES ('l-2', '2026-11-21 06:00Z');
    INSERT INTO rented_node (key, node, pool, hook, state, asked_at, since, start_seconds, minimum_seconds, paid_at,
        joined_at) VALUES ('l-2-k', 'l-2', 'burst', 'cloud', 'joined', '2026-11-20 06:00Z', '2026-11-20 06:05Z', 300,
        3600, '2026-11-20 06:00Z', '2026-11-20 06:05Z');
    INSERT INTO carbon_intensity VALUES ('eu', '2026-01-01', '2026-11-21', 300, 'grid operator'),
        ('eu', '2026-11-21', NULL, 200, 'grid operator');
    INSERT INTO saving SELECT hour, tenant, 7, plan, plan * 2, plan * 5 / 4, plan * 3 / 2, plan * 9 / 8
    FROM unnest(ARRAY['2026-11-20T10:00Z', '2026-11-20T11:00Z']::timestamptz[]) AS hour,
        (VALUES ('shop', 3000000000), ('lab', 1000000000)) AS told (tenant, plan);
    INSERT INTO release_hour VALUES ('2026-11-20T10:00Z', 'l4', 'eu', 'spot', 3, 1, 800000000),
        ('2026-11-20T11:00Z', 'l4', 'eu', 'spot', 3, 1, 800000000);
    INSERT INTO gpu_hour VALUES ('2026-11-20T10:00Z', 'a-1', 0, 60, 50, 40, 400, 450, 1440000000, 60),
        ('2026-11-20T10:00Z', 'l-1', 0, 60, 90, 20, 100, 120, 360000000, 60),
        ('2026-11-20T10:00Z', 'l-1', 1, 60, 0, 0, 20, 20, 72000000, 40);
    INSERT INTO node_hour VALUES ('2026-11-20T10:00Z', 'a-1', 60, 30, 2400, 24000),
        ('2026-11-20T10:00Z', 'l-1', 120, 54, 1200, 7200);
    INSERT INTO plan (generation, epoch, at, lane, state, snapshot, body, desired, others) VALUES
        (6, 1, '2026-11-21 08:00Z', 'full', 'superseded', '[]', '', '', '[{"planner": "inss", "resourceCost": 9,
            "unservedCost": 0, "churnCost": 0, "servedShare": 1, "refused": "", "ageSeconds": 0}]'),
        (7, 1, '2026-11-21 11:50Z', 'full', 'superseded', '[]', '', '', '[{"planner": "morak", "resourceCost": 5.2,
            "unservedCost": 40, "churnCost": 0.3, "servedShare": 0.94, "refused": "", "ageSeconds": 0}, {"planner":
            "hetsev", "resourceCost": 6, "unservedCost": 0, "churnCost": 0, "servedShare": 1, "refused": "",
            "ageSeconds": 60}, {"planner": "mudi", "resourceCost": null, "unservedCost": null, "churnCost": null,
            "servedShare": 0, "refused": "the plan of mudi breaks 1 rule", "ageSeconds": 0}]'),
        (8, 1, '2026-11-21 11:58Z', 'fast', 'rolling', '[]', '', '', '[]');
    INSERT INTO service_load (tenant, service, at, seconds, requests, answers, latency_counts)
    SELECT 'shop', 'search', '2026-11-21 11:50Z'::timestamptz + second * interval '1 second', 10, 50, 50,
        array_fill(0, ARRAY[24]) || ARRAY[45, 5] FROM unnest(ARRAY[10, 20, 70]) AS second;
    UPDATE plan SET cross_check = '{"outcome": "same", "message": "checked against CP-SAT: the same cost", "cost": 5.1,
        "bound": 5.1, "at": "2026-11-21T11:55:00Z"}' WHERE generation = 7
"""


def write(url: str) -> None:
    """Into a migrated, empty database."""
    database = Database(url, pool_size=1)
    hours = [datetime.fromisoformat(hour) for hour in HOURS]
    database.write(lambda connection: partitions.ensure(connection, hours))
    database.close()
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        for hour in HOURS:
            for quarter in ("00", "15", "30", "45"):
                for node, gpu, what, who, kind, part, cost, kwh in SHARES:
                    cursor.execute(
                        ALLOCATION,
                        [
                            hour.replace(":00Z", f":{quarter}Z"), node, gpu, *what, *who, kind,
                            round(part * ONE_HOUR_US / 4), round(cost * 1e9 / 4),
                            None if kwh is None else round(kwh * KWH / 4),
                        ],
                    )  # fmt: skip
        for table, unit in (("cost_hour", "hour"), ("cost_day", "day")):
            cursor.execute(SUMS.format(table=table, unit=unit).encode())
        for hour, (requests, in_time, late_minutes) in zip(HOURS, ASKED, strict=True):
            row = [hour, "shop", "search", "resnet50", 90, 98, requests, requests, in_time, late_minutes, 1800, 7200]
            cursor.execute(SERVICE_HOUR, row)
            cursor.execute(SERVICE_HOUR, [hour, "shop", "tags", "clip", 80, 95, 8000, 8000, 8000, 0, 360, 3600])
        cursor.execute(TENANT, ["shop", '{"budget": {"perMonth": 10, "currency": "EUR"}, "overBudget": "freeze"}'])
        cursor.execute(TENANT, ["lab", '{"budget": {"perMonth": 1000, "currency": "EUR"}}'])
        cursor.execute(REST.encode())
