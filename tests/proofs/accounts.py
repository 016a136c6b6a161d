"""How long the ledger takes for a fleet's days, and that what it booked is GPU-hours x price, to the billionth.

python -m tests.proofs.accounts --days 1 --gpus 1000 --instances 3000
python -m tests.proofs.accounts --ingest 100000
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from sqlalchemy import text

from agents.contract.reports import Report, UsageInterval
from app.nodes.intake import Intake
from app.nodes.usage_bounds import UsageBounds
from app.store.database.database import Database
from app.store.database.urls import libpq_url
from tests.support.figures import ran_seconds
from tests.support.month import Fleet, account_for, load
from tests.support.postgres import postgres_of_the_wheel

BOOKED = """
    SELECT (SELECT count(*) FROM allocation), (SELECT sum(nano) FROM allocation), (SELECT sum(nano) FROM cost_hour),
           (SELECT sum(nano) FROM cost_day),
           (SELECT sum(gpus * nano_per_hour) * %s FROM gpu_owned JOIN price USING (gpu_type))
"""

# What the nodes say in `ingested` is what they were told.
ASSIGNED = """
    INSERT INTO assigned
    SELECT 'node-' || node, 'i-' || place, place % 8, 'shop', 'service-' || place, '', 30, 2, false, now()
    FROM generate_series(0, 99) AS node, generate_series(0, 19) AS place
"""


def measured(url: str, fleet: Fleet) -> tuple[str, bool]:
    """What it took, in a sentence; and whether the money adds up."""
    started = time.perf_counter()
    count = load(url, fleet)
    loaded = time.perf_counter() - started
    seconds = account_for(url, fleet.ends + timedelta(minutes=4))
    with psycopg.connect(libpq_url(url)) as connection:
        rows, *sums = connection.execute(BOOKED, (24 * fleet.days,)).fetchone() or (0, 0, 1)
    said = (
        f"{count:,} intervals loaded in {loaded:.1f} s; accounted for in {seconds:.1f} s: {rows:,} rows, "
        f"{rows / seconds:,.0f} a second, {seconds / fleet.days:.1f} s for a day of the fleet; "
        f"slices, hours, days and GPU-hours x price: {', '.join(str(one) for one in sums)}"
    )
    return said, len(set(sums)) == 1


def ingested(url: str, intervals: int) -> str:
    """How fast intervals are opened and closed in reports of 20, as the server's intake stores them."""
    database = Database(url, pool_size=1, direct=True)
    intake = Intake(database, timedelta(days=7), UsageBounds(per_second=1e6, at_once=1e6))
    now = datetime.now(UTC)
    batches = [
        [_report(f"node-{node}", number, now, ended) for node in range(100)]
        for number in range(intervals // 2000)
        for ended in (False, True)
    ]
    raws = [b"{}"] * 100
    database.write(lambda connection: connection.execute(text(ASSIGNED)))
    backend = database.read(lambda c: c.connection.dbapi_connection.info.backend_pid)  # type: ignore[union-attr]
    started, ran, ran_here = time.perf_counter(), ran_seconds(backend), time.process_time()
    for batch in batches:
        intake.keep(batch, raws)
    seconds, ran = time.perf_counter() - started, ran_seconds(backend) - ran
    ran_here = time.process_time() - ran_here
    database.close()
    count = len(batches) * 2000
    return (
        f"{count / seconds:,.0f} a second opened or closed: {1e6 * ran / count:.0f} us of a processor each in the "
        f"database and {1e6 * ran_here / count:.0f} here"
    )


def _report(node: str, number: int, now: datetime, ended: bool) -> Report:
    began = now - timedelta(minutes=number + 1)
    ended_at = began + timedelta(seconds=30) if ended else None
    usage = tuple(
        UsageInterval(
            id=f"{number}-{place}", instance=f"i-{place}", gpu=place % 8, started_at=began,
            ended_at=ended_at, tenant="shop", service=f"service-{place}", model="resnet50", sm_percent=30.0,
            memory_gib=2.0, evidence="observed",
        )
        for place in range(20)
    )  # fmt: skip
    sequence = 2 * number + ended
    minute = now.replace(second=0, microsecond=0)
    return Report(node=node, incarnation=1, sequence=sequence, at=now, minute=minute, usage=usage)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--instances", type=int, default=3000)
    parser.add_argument("--ingest", type=int, default=0, help="measure how fast so many intervals are stored")
    args = parser.parse_args()
    with TemporaryDirectory() as name, postgres_of_the_wheel(Path(name) / "postgres") as server:
        if args.ingest:
            print(ingested(server.create(), args.ingest))
            return 0
        said, adds_up = measured(server.create(), Fleet(args.days, args.gpus, args.instances))
    print(said if adds_up else f"it does not add up: {said}")
    return int(not adds_up)


if __name__ == "__main__":
    sys.exit(main())
