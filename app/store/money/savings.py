"""Savings of each hour: those of planning, and the cost of nodes that were given back. Both are written once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from app.store.database.database import statement
from app.store.money.allocations import SETTLED


@dataclass(frozen=True, slots=True)
class Due:
    """A past hour, and the plan that was in force when it ended."""

    hour: datetime
    generation: int


@dataclass(frozen=True, slots=True)
class Saving:
    """The hourly costs of a tenant's services by a plan, by each baseline, and as they held GPUs, in billionths."""

    tenant: str
    plan_nano: int
    one_per_gpu_nano: int
    hetsev_nano: int
    largest_nano: int
    held_nano: int | None = None  # None: unknown


DUE = statement(
    "savings_due",
    """
    SELECT hour, generation
    FROM generate_series(
        greatest((SELECT max(hour) FROM saving) + interval '1 hour',
                 date_trunc('hour', moment(), 'UTC') - interval '48 hours'),
        date_trunc('hour', moment() - CAST(:settled AS interval), 'UTC') - interval '1 hour', '1 hour') AS hour,
    LATERAL (
        SELECT generation FROM plan
        WHERE at < hour + interval '1 hour' AND state NOT IN ('advisory', 'proposed', 'rejected', 'expired')
        ORDER BY generation DESC LIMIT 1
    ) AS decided
    ORDER BY hour
    """,
)
LAST = statement(
    "savings_of_plan",
    """
    SELECT tenant, plan_nano, one_per_gpu_nano, hetsev_nano, largest_nano FROM saving
    WHERE generation = :generation AND hour = (SELECT max(hour) FROM saving)
    """,
)
KEEP = statement(
    "keep_savings",
    """
    INSERT INTO saving (hour, tenant, generation, plan_nano, one_per_gpu_nano, hetsev_nano, largest_nano, held_nano)
    SELECT :hour, tenant, :generation, plan_nano, one_per_gpu_nano, hetsev_nano, largest_nano, held_nano
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS saving (
        tenant text, plan_nano bigint, one_per_gpu_nano bigint, hetsev_nano bigint, largest_nano bigint,
        held_nano bigint)
    ON CONFLICT (hour, tenant) DO NOTHING
    """,
)
# Released are GPUs of deleted nodes, as far as fewer are paid for than at some time of the 30 days before: a GPU that
# another node replaced saves nothing. The price in force then counts.
RELEASES = statement(
    "note_releases",
    """
    WITH owned AS (
        SELECT * FROM gpu_owned
        WHERE purchase IN ('onDemand', 'spot') AND valid_from <= :hour
            AND (valid_to IS NULL OR valid_to > CAST(:hour AS timestamptz) - interval '30 days')
    ), moment AS (
        SELECT CAST(:hour AS timestamptz) - interval '30 days' AS at UNION SELECT valid_from FROM owned
    ), counted AS (
        SELECT gpu_type, region, purchase, at, sum(gpus) AS gpus
        FROM moment JOIN owned ON owned.valid_from <= at AND (owned.valid_to IS NULL OR owned.valid_to > at)
        WHERE at >= CAST(:hour AS timestamptz) - interval '30 days' AND at <= :hour
        GROUP BY gpu_type, region, purchase, at
    ), most AS (
        SELECT gpu_type, region, purchase, max(gpus) AS gpus FROM counted GROUP BY gpu_type, region, purchase
    ), now AS (
        SELECT gpu_type, region, purchase,
               coalesce(sum(gpus) FILTER (WHERE valid_to IS NULL OR valid_to > :hour), 0) AS gpus,
               coalesce(sum(gpus) FILTER (WHERE valid_to <= :hour AND NOT EXISTS (
                   SELECT FROM gpu_owned AS other WHERE other.node = owned.node AND other.valid_from <= :hour
                       AND (other.valid_to IS NULL OR other.valid_to > :hour))), 0) AS gone
        FROM owned GROUP BY gpu_type, region, purchase
    ), released AS (
        SELECT gpu_type, region, purchase, now.gpus, least(most.gpus - now.gpus, now.gone) AS released
        FROM most JOIN now USING (gpu_type, region, purchase)
    )
    INSERT INTO release_hour (hour, gpu_type, region, purchase, gpus_before, gpus_now, nano)
    SELECT :hour, gpu_type, region, purchase, gpus + released, gpus, released * price.nano_per_hour
    FROM released JOIN LATERAL (
        SELECT nano_per_hour FROM price
        WHERE (price.gpu_type, price.region, price.purchase) = (released.gpu_type, released.region, released.purchase)
            AND price.valid_from <= :hour
        ORDER BY price.valid_from DESC LIMIT 1
    ) AS price ON true
    WHERE released > 0
    ON CONFLICT (hour, gpu_type, region, purchase) DO NOTHING
    """,
)


def due_hours(connection: Connection) -> list[Due]:
    """Returns settled hours without savings, oldest first; those more than two days ago stay without."""
    return [Due(row.hour, row.generation) for row in connection.execute(DUE, {"settled": SETTLED})]


def last_savings(connection: Connection, generation: int) -> list[Saving]:
    """Returns the savings of the newest hour if this plan was in force then."""
    return [Saving(*row) for row in connection.execute(LAST, {"generation": generation})]


def keep(connection: Connection, due_hour: Due, rows: Sequence[Saving]) -> None:
    """Stores the savings of an hour, and the GPUs released by its beginning."""
    rows_json = msgspec.json.encode(rows).decode()
    connection.execute(KEEP, {"hour": due_hour.hour, "generation": due_hour.generation, "rows": rows_json})
    connection.execute(RELEASES, {"hour": due_hour.hour})
