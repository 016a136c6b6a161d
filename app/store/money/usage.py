"""Usage: the holder of each share, its time, and whether its end was reported or presumed."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from app.store.database.database import SqlRow, statement
from app.store.money.packed_minutes import GPUS

# On a node that is cut off a withdrawn copy may run on for so long; then others serve in its place.
LEAVING = "24 hours"
# Three ranges, each by its own index: open usage; usage that its agent ended; usage that was ended by rule, which the
# agent may have corrected since. An end that the agent reported outranks the conclusion that usage goes on, which may
# come from the report before, while the end is being stored.
# A node reports what ran and when. The owner, the largest share and the earliest begin come from the node's
# assignments; usage that was never assigned is billed to no tenant.
OVERLAPPING = statement(
    "usage_of_node",
    """
    WITH of AS (SELECT CAST(:node AS text) AS node,
                       to_timestamp(CAST(:start AS bigint) / 1000000) AS start,
                       to_timestamp(CAST(:stop AS bigint) / 1000000) AS stop),
    known AS (
        SELECT usage.*, usage.ended_at AS ends_at, CAST(NULL AS timestamptz) AS doubted_until
        FROM of JOIN usage_interval AS usage USING (node)
        WHERE ended_at IS NULL AND started_at < stop
        UNION ALL
        SELECT usage.*, usage.ended_at, NULL FROM of JOIN usage_interval AS usage USING (node)
        WHERE ended_at > start AND started_at < stop AND evidence <> 'gap'
        UNION ALL
        SELECT usage.*, CASE WHEN truth.node IS NULL THEN usage.ended_at ELSE truth.ended_at END,
               CASE WHEN truth.node IS NULL THEN closed_at END
        FROM of JOIN usage_interval AS usage USING (node) LEFT JOIN LATERAL (
            SELECT node, ended_at FROM usage_truth
            WHERE usage_truth.node = usage.node AND usage_truth.id = usage.id
            ORDER BY usage_truth.ended_at IS NULL, told_at DESC LIMIT 1
        ) AS truth ON true
        WHERE evidence = 'gap' AND usage.ended_at IS NOT NULL AND started_at < stop
    )
    SELECT known.id, instance, gpu, assigned.tenant, assigned.service, assigned.job, known.model,
           least(known.sm_percent, assigned.sm_percent) AS sm_percent,
           least(known.memory_gib, assigned.memory_gib) AS memory_gib,
           known.dedicated AND assigned.dedicated AS dedicated,
           CAST(extract(epoch FROM greatest(started_at, first_at)) * 1000000 AS bigint) AS start,
           CAST(extract(epoch FROM ends_at) * 1000000 AS bigint) AS stop,
           CAST(extract(epoch FROM doubted_until) * 1000000 AS bigint) AS doubted,
           CAST(extract(epoch FROM withdrawn_at + CAST(:leaving AS interval)) * 1000000 AS bigint) AS believed
    FROM known JOIN assigned USING (node, instance, gpu)
    LIMIT :limit
    """,
)
OWNED = statement(
    "gpus_owned_by_node",
    """
    SELECT id, gpus, gpu_type, region, purchase, memory_gib,
           CAST(extract(epoch FROM valid_from) * 1000000 AS bigint) AS start,
           CAST(extract(epoch FROM valid_to) * 1000000 AS bigint) AS stop
    FROM gpu_owned
    WHERE node = :node AND valid_from < to_timestamp(CAST(:stop AS bigint) / 1000000)
      AND (valid_to IS NULL OR valid_to > to_timestamp(CAST(:start AS bigint) / 1000000))
    """,
)
RATES = statement(
    "prices_in_force",
    """
    SELECT gpu_type, region, purchase, nano_per_hour,
           CAST(extract(epoch FROM valid_from) * 1000000 AS bigint) AS start,
           CAST(extract(epoch FROM valid_to) * 1000000 AS bigint) AS stop
    FROM price
    WHERE gpu_type = ANY(CAST(:gpu_types AS text[])) AND valid_from < to_timestamp(CAST(:stop AS bigint) / 1000000)
      AND (valid_to IS NULL OR valid_to > to_timestamp(CAST(:start AS bigint) / 1000000))
    """,
)
# A counter that falls was reset and shows the energy since then. Energy used while the node was silent counts where the
# counter was read next. More energy than any GPU can draw is not believed.
MOST_POWER_W = 100_000
_MINUTES = GPUS.select_minutes(
    "to_timestamp(CAST(:start AS bigint) / 1000000) - interval '1 hour'",
    "to_timestamp(CAST(:stop AS bigint) / 1000000)",
    "energy_counter_mj",
)
ENERGY = statement(
    "energy_of_slices",
    f"""
    SELECT gpu, CAST(extract(epoch FROM slice) * 1000000 AS bigint) AS slice, CAST(sum(drawn_mj) AS bigint) AS energy_mj
    FROM (SELECT gpu, date_bin('15 minutes', minute, '1970-01-01Z') AS slice,
                 extract(epoch FROM passed) AS seconds,
                 CASE WHEN energy_counter_mj < before THEN energy_counter_mj ELSE energy_counter_mj - before END
                     AS drawn_mj
          FROM (SELECT gpu, minute, energy_counter_mj, lag(energy_counter_mj) OVER of_gpu AS before,
                       minute - lag(minute) OVER of_gpu AS passed
                FROM ({_MINUTES}) AS line
                WINDOW of_gpu AS (PARTITION BY gpu ORDER BY minute)) AS read
          WHERE before IS NOT NULL) AS drawn
    WHERE slice >= to_timestamp(CAST(:start AS bigint) / 1000000)
      AND drawn_mj <= CAST(:most_power_w AS bigint) * 1000 * seconds
    GROUP BY gpu, slice
    """,
)

# The nodes that run services in the time, or may still run some that were withdrawn; and when each reported last.
SERVING = statement(
    "nodes_that_served",
    """
    SELECT node, CAST(extract(epoch FROM received_at) * 1000000 AS bigint) AS reported_at
    FROM node_state
    WHERE EXISTS (
        SELECT FROM assigned
        WHERE assigned.node = node_state.node AND service <> ''
          AND first_at < to_timestamp(CAST(:stop AS bigint) / 1000000)
          AND (withdrawn_at IS NULL
               OR withdrawn_at > to_timestamp(CAST(:start AS bigint) / 1000000) - CAST(:leaving AS interval)))
    ORDER BY node
    """,
)
PRICING = statement(
    "pricing_of_policy",
    """
    SELECT coalesce((SELECT spec ->> 'pricing' FROM object
                     WHERE kind = 'Policy' AND tenant = '' AND name = 'default'), 'node')
    """,
)


def overlapping(connection: Connection, node: str, start: int, stop: int, limit: int) -> list[SqlRow]:
    """Returns usage of the node that may overlap the time; without `stop` it goes on, but not beyond `believed`."""
    given = {"node": node, "start": start, "stop": stop, "leaving": LEAVING, "limit": limit}
    return list(connection.execute(OVERLAPPING, given))


def list_owned_gpus(connection: Connection, node: str, start: int, stop: int) -> list[SqlRow]:
    """Returns the GPUs of the node that were paid for in the time."""
    return list(connection.execute(OWNED, {"node": node, "start": start, "stop": stop}))


def rates(connection: Connection, gpu_types: Sequence[str], start: int, stop: int) -> list[SqlRow]:
    """Returns the prices of such GPUs in the time."""
    given = {"gpu_types": list(gpu_types), "start": start, "stop": stop}
    return list(connection.execute(RATES, given))


def energy(connection: Connection, node: str, start: int, stop: int) -> list[SqlRow]:
    """Returns the energy of each GPU in each slice, where it was read."""
    given = {"node": node, "start": start, "stop": stop, "most_power_w": MOST_POWER_W}
    return list(connection.execute(ENERGY, given))


def serving_nodes(connection: Connection, start: int, stop: int) -> list[tuple[str, int]]:
    """Returns the nodes that may have run services in the time, and when each reported last."""
    given = {"start": start, "stop": stop, "leaving": LEAVING}
    return [(row.node, row.reported_at) for row in connection.execute(SERVING, given)]


def pricing(connection: Connection) -> str:
    """Returns the policy's pricing: `gpu`, `share` or `node`."""
    return str(connection.execute(PRICING).scalar_one())
