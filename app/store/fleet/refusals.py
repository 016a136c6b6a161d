"""The instances that nodes refused to run, written once for each instance and generation."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from app.store.database.database import statement

NOTE = statement(
    "note_refusals",
    """
    INSERT INTO refusal (node, instance, generation)
    SELECT :node, instance, :generation FROM unnest(CAST(:instances AS text[])) AS told (instance)
    ORDER BY instance
    ON CONFLICT DO NOTHING
    RETURNING instance
    """,
)
FORGET = statement(
    "forget_refusals",
    """
    DELETE FROM refusal WHERE (node, instance, generation) IN (
        SELECT node, instance, generation FROM refusal WHERE at < now() - interval '30 days' ORDER BY at LIMIT :limit)
    """,
)


def note(connection: Connection, node: str, generation: int, instances: Sequence[str]) -> set[str]:
    """Those of `instances` whose refusal was not known yet."""
    told = {"node": node, "generation": generation, "instances": list(instances)}
    return set(connection.execute(NOTE, told).scalars())


def forget(connection: Connection, limit: int) -> int:
    """Drop up to `limit` that are a month old; how many went."""
    return connection.execute(FORGET, {"limit": limit}).rowcount
