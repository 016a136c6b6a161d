"""Usage that no agent will end is ended by rule, with the evidence `gap`; it goes on where its agent names it again."""

from __future__ import annotations

from sqlalchemy import Connection

from app.store.database.database import statement

LOST = "24 hours"  # of silence: what ran there is taken to have ended when its node was heard last
DELETED = "1 hour"  # the same, where the node is not declared any more
MISSING = "15 minutes"  # not named by a node that is heard
HEARD = "1 minute"

# Each of them tells the ledger from when on to look again.
END_LOST = statement(
    "end_usage_of_lost_nodes",
    """
    WITH lost AS (
        SELECT node, id, greatest(started_at, received_at) AS ended_at
        FROM usage_interval LEFT JOIN node_state USING (node)
        WHERE ended_at IS NULL
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
# A copy that a node's agent has forgotten: its journal was lost. An agent that names no copies at all names instances
# in its minutes.
_UNNAMED = """
    CASE WHEN detail ? 'copies'
         THEN NOT detail -> 'copies' @> jsonb_build_array(jsonb_build_object('id', usage_interval.id))
         ELSE NOT EXISTS (
             SELECT FROM instance_minute WHERE instance_minute.node = usage_interval.node
                AND instance_minute.instance = usage_interval.instance
                AND minute > (SELECT moment()) - CAST(:missing AS interval))
         END
"""
NOTE_MISSING = statement(
    "note_missing_usage",
    f"""
    WITH unnamed AS (
        SELECT usage_interval.node, id FROM usage_interval
        JOIN node_state USING (node) JOIN node_detail USING (node)
        WHERE ended_at IS NULL AND received_at > (SELECT moment()) - CAST(:heard AS interval)
          AND opened_at < (SELECT moment()) - CAST(:heard AS interval) AND {_UNNAMED}
    ), named AS (
        DELETE FROM usage_missing USING node_state
        WHERE usage_missing.node = node_state.node AND received_at > (SELECT moment()) - CAST(:heard AS interval)
          AND (usage_missing.node, id) NOT IN (SELECT node, id FROM unnamed)
    )
    INSERT INTO usage_missing SELECT node, id, (SELECT moment()) FROM unnamed
    ON CONFLICT DO NOTHING
    """,
)
END_MISSING = statement(
    "end_missing_usage",
    """
    WITH missing AS (
        DELETE FROM usage_missing USING node_state
        WHERE node_state.node = usage_missing.node AND received_at > since + CAST(:missing AS interval)
        RETURNING usage_missing.node, id, since
    ), ended AS (
        UPDATE usage_interval AS known
        SET ended_at = greatest(started_at, least(since, (
                SELECT max(minute) + interval '1 minute' FROM instance_minute
                WHERE instance_minute.node = known.node AND instance_minute.instance = known.instance
                  AND minute < since))),
            closed_at = (SELECT moment()), evidence = 'gap'
        FROM missing WHERE (known.node, known.id) = (missing.node, missing.id) AND known.ended_at IS NULL
        RETURNING known.node, known.ended_at
    ), news AS (
        INSERT INTO usage_news SELECT node, min(ended_at) FROM ended GROUP BY node
    )
    SELECT count(*) FROM ended
    """,
)
GOES_ON = statement(
    "usage_that_goes_on",
    """
    WITH named AS (
        INSERT INTO usage_truth (node, id, told_at, ended_at, evidence)
        SELECT usage_interval.node, usage_interval.id, (SELECT moment()), NULL, 'named'
        FROM usage_interval JOIN node_state USING (node) JOIN node_detail USING (node)
        WHERE usage_interval.ended_at IS NOT NULL AND evidence = 'gap' AND received_at > closed_at
          AND EXISTS (SELECT FROM jsonb_array_elements(detail -> 'copies') AS copy
                      WHERE copy ->> 'id' = usage_interval.id AND copy ->> 'stage' <> 'gone')
          AND NOT EXISTS (SELECT FROM usage_truth AS said
                          WHERE said.node = usage_interval.node AND said.id = usage_interval.id)
        RETURNING node, id
    ), news AS (
        INSERT INTO usage_news SELECT node, min(ended_at) FROM named JOIN usage_interval USING (node, id) GROUP BY node
    )
    SELECT count(*) FROM named
    """,
)


def end_lost(connection: Connection, limit: int) -> int:
    """End the usage of nodes that will not be heard again; how much that was."""
    given = {"lost": LOST, "deleted": DELETED, "limit": limit}
    return int(connection.execute(END_LOST, given).scalar_one())


def settle_missing(connection: Connection) -> int:
    """Note what nodes do not name, end what they have not named for long, let go on what they name again."""
    connection.execute(NOTE_MISSING, {"heard": HEARD, "missing": MISSING})
    ended = int(connection.execute(END_MISSING, {"missing": MISSING}).scalar_one())
    return ended + int(connection.execute(GOES_ON).scalar_one())
