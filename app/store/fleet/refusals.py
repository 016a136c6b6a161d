"""Instances that nodes refused to run, recorded once for each instance and generation."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from app.store.database.database import statement

NOTE = statement(
    "note_refusals",
    """
    INSERT INTO refusal (node, instance, generation)
    SELECT :node, instance, :generation FROM unnest(CAST(:instances AS text[])) AS refused (instance)
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
    """Records refusals; returns the `instances` whose refusal is new."""
    values = {"node": node, "generation": generation, "instances": list(instances)}
    return set(connection.execute(NOTE, values).scalars())


def forget(connection: Connection, limit: int) -> int:
    """Deletes up to `limit` refusals that are a month old; returns how many."""
    return connection.execute(FORGET, {"limit": limit}).rowcount
