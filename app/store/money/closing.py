"""Usage that no agent will end is ended by rule, with the evidence `gap`; it goes on where its agent names it again."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from app.store.database.database import statement

LOST = "24 hours"  # of silence: what ran there is taken to have ended at the last report
DELETED = "1 hour"  # the same, where the node is not declared any more
MISSING = "15 minutes"  # not listed by a node that reports
REPORTING = "1 minute"  # a node that has reported within this time

# Where anything may have to be ended. Of open usage the first of each node: one descent of the index each.
NODES = statement(
    "nodes_with_usage",
    """
    WITH RECURSIVE open AS (
        (SELECT node FROM usage_interval WHERE ended_at IS NULL ORDER BY node LIMIT 1)
        UNION ALL
        SELECT (SELECT usage_interval.node FROM usage_interval
                WHERE ended_at IS NULL AND usage_interval.node > open.node ORDER BY node LIMIT 1)
        FROM open WHERE open.node IS NOT NULL
    )
    SELECT node FROM open WHERE node IS NOT NULL UNION SELECT node FROM node_state ORDER BY node
    """,
)
# Each of the following is about a few nodes only, and tells the ledger from when on to look again.
END_LOST = statement(
    "end_usage_of_lost_nodes",
    """
    WITH lost AS (
        SELECT node, id, greatest(started_at, received_at) AS ended_at
        FROM usage_interval LEFT JOIN node_state USING (node)
        WHERE node = ANY(CAST(:nodes AS text[])) AND ended_at IS NULL
          AND coalesce(received_at, opened_at) < (SELECT moment()) - CASE
              WHEN EXISTS (SELECT FROM object WHERE kind = 'Node' AND tenant = '' AND name = node)
              THEN CAST(:lost AS interval) ELSE CAST(:deleted AS interval) END
        ORDER BY node, id LIMIT :limit
    ), ended AS (
        UPDATE usage_interval AS known
        SET ended_at = lost.ended_at, closed_at = (SELECT moment()), evidence = 'gap'
        FROM lost WHERE (known.node, known.id) = (lost.node, lost.id) AND known.ended_at IS NULL
        RETURNING known.node, known.ended_at
    ), news AS (
        INSERT INTO usage_news SELECT node, min(ended_at) FROM ended GROUP BY node
    )
    SELECT count(*) FROM ended
    """,
)
# A copy that a node's agent has forgotten: its journal was lost. Usage is named by its copy, COPY@GPU for the further
# GPUs of one on several, and COPY+TIMES once it has returned from host memory. An agent that lists no copies at all
# lists instances in its minutes. Lists are unfolded once, so that long ones cost no more than their length.
NOTE_MISSING = statement(
    "note_missing_usage",
    """
    WITH reporting AS MATERIALIZED (
        SELECT node, detail FROM node_state JOIN node_detail USING (node)
        WHERE node = ANY(CAST(:nodes AS text[])) AND received_at > (SELECT moment()) - CAST(:reporting AS interval)
    ), listed AS MATERIALIZED (
        SELECT node, copy ->> 'id' AS id FROM reporting, jsonb_array_elements(detail -> 'copies') AS copy
    ), counted AS MATERIALIZED (
        SELECT DISTINCT node, instance FROM instance_minute
        WHERE node IN (SELECT node FROM reporting WHERE NOT detail ? 'copies')
          AND minute > (SELECT moment()) - CAST(:missing AS interval)
    ), unnamed AS MATERIALIZED (
        SELECT usage.node, usage.id FROM usage_interval AS usage JOIN reporting USING (node)
        LEFT JOIN listed ON (listed.node, listed.id) = (usage.node, split_part(translate(usage.id, '+', '@'), '@', 1))
        LEFT JOIN counted ON (counted.node, counted.instance) = (usage.node, usage.instance)
        WHERE usage.ended_at IS NULL AND usage.opened_at < (SELECT moment()) - CAST(:reporting AS interval)
          AND listed.node IS NULL AND counted.node IS NULL
    ), named AS (
        DELETE FROM usage_missing USING reporting
        WHERE usage_missing.node = reporting.node
          AND (usage_missing.node, usage_missing.id) NOT IN (SELECT node, id FROM unnamed)
    )
    INSERT INTO usage_missing SELECT node, id, (SELECT moment()) FROM unnamed
    ON CONFLICT DO NOTHING
    """,
)
# It ended with the last minute of its instance in the day before it was missing.
END_MISSING = statement(
    "end_missing_usage",
    """
    WITH missing AS MATERIALIZED (
        SELECT usage_missing.node, id, since FROM usage_missing JOIN node_state USING (node)
        WHERE usage_missing.node = ANY(CAST(:nodes AS text[])) AND received_at > since + CAST(:missing AS interval)
        ORDER BY usage_missing.node, id LIMIT :limit
    ), done AS (
        DELETE FROM usage_missing USING missing
        WHERE (usage_missing.node, usage_missing.id) = (missing.node, missing.id)
    ), minutes AS MATERIALIZED (
        SELECT missing.node, missing.id, max(minute) + interval '1 minute' AS last
        FROM missing JOIN usage_interval USING (node, id)
        JOIN instance_minute ON (instance_minute.node, instance_minute.instance)
                                = (usage_interval.node, usage_interval.instance)
        WHERE minute < since AND minute >= (SELECT min(since) FROM missing) - interval '1 day'
        GROUP BY missing.node, missing.id
    ), ended AS (
        UPDATE usage_interval AS known
        SET ended_at = greatest(started_at, least(since, minutes.last)),
            closed_at = (SELECT moment()), evidence = 'gap'
        FROM missing LEFT JOIN minutes USING (node, id)
        WHERE (known.node, known.id) = (missing.node, missing.id) AND known.ended_at IS NULL
        RETURNING known.node, known.ended_at
    ), news AS (
        INSERT INTO usage_news SELECT node, min(ended_at) FROM ended GROUP BY node
    )
    SELECT count(*) FROM missing
    """,
)
GOES_ON = statement(
    "usage_that_goes_on",
    """
    WITH listed AS MATERIALIZED (
        SELECT DISTINCT node, copy ->> 'id' AS id, received_at
        FROM node_state JOIN node_detail USING (node), jsonb_array_elements(detail -> 'copies') AS copy
        WHERE node = ANY(CAST(:nodes AS text[])) AND copy ->> 'stage' NOT IN ('gone', 'swapped')
    ), named AS (
        INSERT INTO usage_truth (node, id, told_at, ended_at, evidence)
        SELECT usage.node, usage.id, (SELECT moment()), NULL, 'named'
        FROM listed JOIN usage_interval AS usage
            ON usage.node = listed.node AND split_part(translate(usage.id, '+', '@'), '@', 1) = listed.id
        WHERE usage.ended_at IS NOT NULL AND evidence = 'gap' AND received_at > closed_at
          AND NOT EXISTS (SELECT FROM usage_interval AS later
                          WHERE later.node = usage.node AND later.instance = usage.instance
                            AND later.started_at > usage.started_at)
          AND NOT EXISTS (SELECT FROM usage_truth AS known
                          WHERE known.node = usage.node AND known.id = usage.id)
        RETURNING node, id
    ), news AS (
        INSERT INTO usage_news SELECT node, min(ended_at) FROM named JOIN usage_interval USING (node, id) GROUP BY node
    )
    SELECT count(*) FROM named
    """,
)


def nodes(connection: Connection) -> list[str]:
    """Returns the nodes whose usage may have to be ended by rule."""
    return list(connection.execute(NODES).scalars())


def end_lost(connection: Connection, of: Sequence[str], limit: int) -> int:
    """Ends usage of those nodes that will not report again; returns how much was ended."""
    given = {"nodes": list(of), "lost": LOST, "deleted": DELETED, "limit": limit}
    return int(connection.execute(END_LOST, given).scalar_one())


def note_missing(connection: Connection, of: Sequence[str]) -> None:
    """Notes the usage that those nodes do not list any more."""
    connection.execute(NOTE_MISSING, {"nodes": list(of), "reporting": REPORTING, "missing": MISSING})


def end_missing(connection: Connection, of: Sequence[str], limit: int) -> int:
    """Ends usage that those nodes have not listed for long; returns how much was looked at."""
    return int(connection.execute(END_MISSING, {"nodes": list(of), "missing": MISSING, "limit": limit}).scalar_one())


def go_on(connection: Connection, of: Sequence[str]) -> int:
    """Lets usage go on that was ended and that those nodes list again; returns how much."""
    return int(connection.execute(GOES_ON, {"nodes": list(of)}).scalar_one())
