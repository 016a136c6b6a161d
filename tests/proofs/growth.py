"""How much every table of the database grows, and where that ends: `python -m tests.proofs.growth`.

A row's bytes are measured in a small simulated fleet, its indexes included, and multiplied by the rows that a fleet of
the given size has after the given days. Where the small fleet fills no row, the row counts as large as stated below.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from app.ledger import keeping
from app.nodes import expansion
from app.nodes.pace import WorkPace
from app.store.database.urls import libpq_url
from app.store.money import packed_minutes, rollups
from simulation.run import Simulation, open_simulation
from tests.simulation.worlds import small
from tests.support.postgres import postgres_of_the_wheel

ROW_BYTES = 28  # of the header of a row and its place in the page
ENTRY_BYTES = 40  # of an index
GUESSED_BYTES = 300
TABLES = """
    SELECT c.relnamespace::regnamespace::text, c.relname, count(i.indexrelid)
    FROM pg_class AS c LEFT JOIN pg_index AS i ON i.indrelid = c.oid
    WHERE c.relnamespace IN ('public'::regnamespace, 'report'::regnamespace) AND c.relkind IN ('r', 'p')
        AND NOT c.relispartition AND c.relname <> 'alembic_version'
    GROUP BY c.oid ORDER BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class GrowingFleet:
    """A fleet, and what happens in it; a minute, an hour or a day is of that length."""

    days: float = 30.0
    gpus: int = 1000
    nodes: int = 125
    instances: int = 3000
    services: int = 300
    jobs: int = 50
    tenants: int = 20
    profiles: int = 400
    gateways: int = 4
    shapes_a_day: float = 4.0  # of an instance: hand-overs and moves
    plans_a_day: float = 300.0
    writes_a_day: float = 500.0  # by people
    statuses_a_day: float = 20.0  # of a service or node
    events_a_day: float = 2000.0

    def last(self, most_days: float) -> float:
        """Returns the days of which rows are there."""
        return min(self.days, most_days)


@dataclass(frozen=True, slots=True)
class TableGrowth:
    """A table, the end of its growth, and its rows in a fleet."""

    name: str
    bound: str
    rows: Callable[[GrowingFleet], float]


def _objects(f: GrowingFleet) -> float:
    return f.services + f.jobs + f.nodes + f.tenants + f.profiles * 4 / 3


GROWTH = (
    TableGrowth("version", "a row for each stream", lambda f: 7),
    TableGrowth("lease", "a row for each kind of leader", lambda f: 2),
    TableGrowth("object", "10,000 services and jobs a tenant; the others are declared by operators", _objects),
    TableGrowth("reference", "a few rows for each object", lambda f: 2 * _objects(f)),
    TableGrowth(
        "change", "24 hours, at most 20,000 changes a day by a tenant",
        lambda f: f.last(1) * (f.statuses_a_day * (f.services + f.nodes) + f.writes_a_day),
    ),
    TableGrowth("token", "90 days after its end; a node's last stays", lambda f: f.nodes * (1 + f.last(120) / 15)),
    TableGrowth("join_token", "90 days after its end", lambda f: f.nodes),
    TableGrowth("change_count", "two days, a row for each tenant and token that changes objects", lambda f: f.tenants),
    TableGrowth(
        "audit", "400 days, not less than 90; at most 20,000 changes a day by a tenant",
        lambda f: f.last(400) * f.writes_a_day,
    ),
    TableGrowth("idempotency", "24 hours, at most 20,000 and 256 MiB a token", lambda f: f.last(1) * f.writes_a_day),
    TableGrowth(
        "event", "30 days, at most 100,000 a tenant and 1,000,000 without one", lambda f: f.last(30) * f.events_a_day
    ),
    TableGrowth(
        "webhook", "a row for each webhook, until ten minutes after it left the file; of the audit, 14 days",
        lambda f: 2,
    ),
    TableGrowth(
        "webhook_delivery",
        "until they arrive; of events at most 10,000 waiting of a webhook, and dead letters for 14 days; of the audit "
        "89 days at most",
        lambda f: 100,
    ),
    TableGrowth("refusal", "30 days", lambda f: f.last(30) * 10),
    TableGrowth("node_state", "a row for each node, until a day after its deletion", lambda f: f.nodes),
    TableGrowth("node_inventory", "a row for each node, until a day after its deletion", lambda f: f.nodes),
    TableGrowth("node_detail", "a row for each node, until a day after its deletion", lambda f: f.nodes),
    TableGrowth("assignment", "a row for each node, until a day after its deletion", lambda f: f.nodes),
    TableGrowth("report_minute", "minutes that are not over; none older than a day is taken", lambda f: 2 * f.nodes),
    TableGrowth("gpu_minute", "two days, then packed", lambda f: f.last(2) * 1440 * f.gpus),
    TableGrowth(
        "instance_minute", "two days, then packed; of a node's assigned instances and 64 others",
        lambda f: f.last(2) * 1440 * f.instances,
    ),
    TableGrowth("gpu_hour_minutes", "14 days", lambda f: max(0.0, f.last(14) - 2) * 24 * f.gpus),
    TableGrowth("instance_hour_minutes", "14 days", lambda f: max(0.0, f.last(14) - 2) * 24 * f.instances),
    TableGrowth("gpu_hour", "400 days", lambda f: f.last(400) * 24 * f.gpus),
    TableGrowth("instance_hour", "400 days", lambda f: f.last(400) * 24 * f.instances),
    TableGrowth("pending_hour", "hours that are not rolled up", lambda f: 2),
    TableGrowth("service_load", "three hours, in rows of 10 seconds", lambda f: f.services * 3 * 360),
    TableGrowth("service_load_hour", "32 days", lambda f: f.last(32) * 24 * f.services),
    TableGrowth("fleet_minute", "32 days, a row for each minute", lambda f: f.last(32) * 1440),
    TableGrowth("gateway_state", "a row for each gateway, until 7 days of silence", lambda f: f.gateways),
    TableGrowth("approval_hold", "one row at most, until the fleet is resumed", lambda f: 1),
    TableGrowth("traffic_limit", "a row for each limited service", lambda f: f.services / 10),
    TableGrowth("cordon", "a row for each cordoned node or GPU, until its node is deleted", lambda f: f.nodes / 10),
    TableGrowth("campaign", "400 days; one at a time on each node", lambda f: f.nodes * 4),
    TableGrowth("log_request", "a minute; at most 500 that wait for an answer, 100 of a tenant", lambda f: 0),
    TableGrowth("campaign_measurement", "with its campaign; at most 256 in one", lambda f: f.nodes * 4 * 16),
    TableGrowth("rented_node", "400 days; a row for each node that was ordered", lambda f: f.nodes * 4),
    TableGrowth("reclaim_notice", "two rows for each node under notice, until it is withdrawn", lambda f: f.nodes / 10),
    TableGrowth("plan", "30 days, at most 2,048 MB with its pieces", lambda f: f.last(30) * f.plans_a_day),
    TableGrowth("scale_pause", "one row at most, until scalers are resumed", lambda f: 1),
    TableGrowth("scale_plan", "30 days; a row for each change of what a scaler wants", lambda f: f.last(30) * 500),
    TableGrowth(
        "scale_decision", "of the newest 200 plans a row for each workload; of older ones what changed, 2,000 of each",
        lambda f: 200 * 20 + f.last(30) * 500,
    ),
    TableGrowth("own_plan", "as long as its plan", lambda f: f.last(30) * f.plans_a_day * 3),
    TableGrowth("piece", "as long as a plan or cycle needs it", lambda f: f.last(30) * f.plans_a_day * 4),
    TableGrowth("cycle", "30 days", lambda f: f.last(30) * 2880),
    TableGrowth("correction", "a row for each profile that measurements correct", lambda f: f.profiles),
    TableGrowth("job_state", "a row for each job, until it is deleted", lambda f: f.jobs),
    TableGrowth("outlook", "a row for each subject", lambda f: 3),
    TableGrowth("idle_node", "a row for each empty node", lambda f: f.nodes / 10),
    TableGrowth("price", "a row for each change of a price by an operator", lambda f: 30),
    TableGrowth("gpu_owned", "a row for each change of a node by an operator", lambda f: 2 * f.nodes),
    TableGrowth("ledger_node", "a row for each node that was ever declared", lambda f: f.nodes),
    TableGrowth("ledger_quarantine", "a row for each node that cannot be accounted for", lambda f: 0),
    TableGrowth("usage_interval", "430 days", lambda f: f.last(430) * f.instances * f.shapes_a_day),
    TableGrowth("usage_truth", "430 days", lambda f: f.last(430) * f.nodes / 10),
    TableGrowth("usage_news", "until the ledger has looked again", lambda f: f.nodes),
    TableGrowth("usage_missing", "until the node names it again, or 15 minutes", lambda f: 0),
    TableGrowth("assigned", "430 days after its withdrawal", lambda f: f.instances * (1 + f.last(430) / 3)),
    TableGrowth("allocation", "400 days", lambda f: f.last(400) * 96 * (f.instances + f.gpus)),
    TableGrowth("cost_hour", "400 days", lambda f: f.last(400) * 24 * (f.instances + f.gpus)),
    TableGrowth("cost_day", "3,660 days", lambda f: f.last(3660) * (f.instances + f.gpus)),
    TableGrowth("service_hour", "400 days", lambda f: f.last(400) * 24 * f.services),
    TableGrowth("node_hour", "400 days", lambda f: f.last(400) * 24 * f.nodes),
    TableGrowth("saving", "400 days", lambda f: f.last(400) * 24 * f.tenants),
    TableGrowth("release_hour", "400 days", lambda f: f.last(400) * 24 * 2),
    TableGrowth("carbon_intensity", "a row for each change by an administrator", lambda f: 10),
    TableGrowth("report_reader", "a row for each role and tenant, by an administrator", lambda f: 10),
    TableGrowth("report.calendar", "a row for each day from 2000 to 2099", lambda f: 36_525),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table's rows and bytes in a fleet; `measured` tells if the small fleet had rows of it."""

    growth: TableGrowth
    rows: int
    row_bytes: float
    measured: bool

    @property
    def megabytes(self) -> float:
        return self.rows * self.row_bytes / 1e6


def fill(url: str, seconds: float) -> None:
    """Lets a small fleet run, planned, reported, accounted for and rolled up."""
    with open_simulation(url, small()) as simulation:
        simulation.advance(seconds)
        simulation.plans = False
        for _ in range(3):  # the last report; the hour that it ends; what follows from it
            _settle(simulation)
            simulation.clock.advance(2 * 3600)
            simulation.tick()


def _settle(simulation: Simulation) -> None:
    database, pace = simulation.database, WorkPace(0)
    expansion.expand_finished(database, pace)
    for pending in database.read(rollups.pending_hours):
        names = database.read(partial(rollups.nodes, pending=pending))
        database.write(partial(rollups.roll_up, hour=pending.hour, names=names))
        database.write(partial(packed_minutes.pack, hour=pending.hour, nodes=names))
        database.write(partial(rollups.mark_done, pending=pending))
    keeping.bring_up_to_date(database, pace)


def tables(connection: psycopg.Connection[tuple[object, ...]]) -> Mapping[str, int]:
    """Returns every table, and how many indexes it has."""
    found = connection.execute(TABLES).fetchall()
    return {str(name) if schema == "public" else f"{schema}.{name}": int(str(count)) for schema, name, count in found}


def sizes(url: str, fleet: GrowingFleet) -> Iterator[TableSize]:
    """Yields the size of every listed table that the database has."""
    with psycopg.connect(libpq_url(url)) as connection:
        there = tables(connection)
        for growth in GROWTH:
            if growth.name not in there:
                continue
            sql = f"SELECT avg(pg_column_size(t.*)) FROM {growth.name} AS t"
            row = connection.execute(sql.encode()).fetchone()
            known = float(row[0]) if row and row[0] is not None else None
            row_bytes = (known or GUESSED_BYTES) + ROW_BYTES + ENTRY_BYTES * there[growth.name]
            yield TableSize(growth, round(growth.rows(fleet)), row_bytes, known is not None)


def lines(found: list[TableSize]) -> Iterator[str]:
    """Yields the rows of a table in Markdown, and their sum."""
    yield "| table | grows until | rows | bytes a row | MB |"
    yield "|---|---|---|---|---|"
    for size in found:
        guess = "" if size.measured else "~"
        yield (
            f"| `{size.growth.name}` | {size.growth.bound} | {size.rows:,} | {guess}{size.row_bytes:.0f} "
            f"| {size.megabytes:,.1f} |"
        )
    yield f"| all | | {sum(size.rows for size in found):,} | | {sum(size.megabytes for size in found):,.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3900.0, help="of the small fleet")
    asked = parser.parse_args()
    scale = asked.gpus / GrowingFleet().gpus
    fleet = GrowingFleet(
        days=asked.days, gpus=asked.gpus, nodes=round(125 * scale), instances=round(3000 * scale),
        services=round(300 * scale), jobs=round(50 * scale),
    )  # fmt: skip
    with TemporaryDirectory() as folder, postgres_of_the_wheel(Path(folder) / "postgres") as server:
        server.answer_before_the_disk()
        url = server.create()
        fill(url, asked.seconds)
        print("\n".join(lines(list(sizes(url, fleet)))))


if __name__ == "__main__":
    main()
