"""How long each view of schema report takes on a fleet's month: `python -m tests.proofs.reports_sql`.

Prints for every view the time of its hour (the hourly ones), of thirty days (daily) or of a month (monthly), the
least of a few runs, how much of a processor that took here and in the database (where others use the machine too, the
time says more of them), and whether an hour read anything whole that grows with time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from tests.support.figures import ran_seconds
from tests.support.month import Fleet, load_accounted
from tests.support.postgres import postgres_of_the_wheel

RUNS = 3
LARGE = ("cost_hour", "cost_day", "allocation", "service_hour", "node_hour", "saving")
VIEWS = """
    SELECT relname, array_agg(attname::text) FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0
    WHERE relnamespace = 'report'::regnamespace AND relkind = 'v' AND relname NOT IN ('days', 'months')
    GROUP BY relname ORDER BY relname
"""
# Beside the ledger: an hour of each service and GPU, and what was saved.
BESIDE = """
    INSERT INTO service_hour (hour, tenant, service, model, slo_ms, percentile, requests, answers, errors, in_time,
        asked_minutes, violation_minutes, busy_seconds, instance_seconds)
    SELECT hour, tenant, service, max(model), 100, 98, 36000, 35990, 10, 35500, 60, 1, 9000, 36000
    FROM cost_hour WHERE kind = 'used' GROUP BY hour, tenant, service;
    INSERT INTO node_hour SELECT hour, node, 60 * count(DISTINCT gpu), 30, 600, 12000
    FROM cost_hour GROUP BY hour, node;
    INSERT INTO saving SELECT DISTINCT hour, tenant, 1, 1000, 2000, 1500, 3000, 1100 FROM cost_hour WHERE tenant <> ''
"""


def queries(name: str, columns: list[str], fleet: Fleet) -> Iterator[tuple[str, str]]:
    """What people ask of a view: (what it is called, the query)."""
    middle = (fleet.begins + timedelta(days=fleet.days // 2, hours=10)).isoformat()
    if "hour" in columns:
        yield (
            "hour",
            f"SELECT * FROM report.{name} WHERE hour >= '{middle}' AND hour < '{middle}'::timestamptz + '1 hour'",
        )
    elif "day" in columns:
        yield "30 days", f"SELECT * FROM report.{name} WHERE day >= '{fleet.begins}' AND day < '{fleet.ends}'"
    elif "month" in columns and name.endswith("_monthly"):
        yield "month", f"SELECT * FROM report.{name} WHERE month = '{fleet.begins:%Y-%m}-01'"
    else:
        yield "now", f"SELECT * FROM report.{name}"


def measured(connection: psycopg.Connection[tuple[object, ...]], query: str) -> tuple[float, float, int]:
    """Milliseconds, and those of a processor, here and in the database, each the least of some runs; how many rows."""
    passed, ran, count = [], [], 0
    for _ in range(RUNS):
        began, ran_before = time.perf_counter(), _ran_ms(connection)
        count = len(connection.execute(query.encode()).fetchall())
        passed.append(1000 * (time.perf_counter() - began))
        ran.append(_ran_ms(connection) - ran_before)
    return min(passed), min(ran), count


def _ran_ms(connection: psycopg.Connection[tuple[object, ...]]) -> float:
    """How long this process and the one that serves it have been on a processor; not those that help that one."""
    return 1000 * (ran_seconds(connection.info.backend_pid) + time.process_time())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--instances", type=int, default=3000)
    parser.add_argument("--services", type=int, default=300)
    asked = parser.parse_args()
    fleet = Fleet(days=asked.days, gpus=asked.gpus, instances=asked.instances, services=asked.services)
    with TemporaryDirectory() as folder, postgres_of_the_wheel(Path(folder) / "postgres") as server:
        server.answer_before_the_disk()
        url = server.create()
        server.stands_at(url, fleet.ends)
        began = time.perf_counter()
        print(f"{load_accounted(url, fleet)} allocations in {time.perf_counter() - began:.0f} s")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(BESIDE.encode())
            connection.execute("VACUUM ANALYZE")
            for name, columns in connection.execute(VIEWS).fetchall():
                for what, query in queries(name, columns, fleet):
                    milliseconds, ran, rows = measured(connection, query)
                    plan = "\n".join(row[0] for row in connection.execute(b"EXPLAIN " + query.encode()))
                    whole = [table for table in LARGE if f"Seq Scan on {table}" in plan] if what == "hour" else []
                    told = f"; reads {', '.join(whole)} whole" if whole else ""
                    took = f"{milliseconds:>8.1f} ms, {ran:>7.1f} ms of a processor"
                    print(f"{name:<32} {what:<8} {took} {rows:>8} rows{told}", flush=True)


if __name__ == "__main__":
    main()
