"""The newest assignment of each node, never replaced by one of an older leader or plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from app.store.database import versions
from app.store.database.database import statement

STREAM = "assignment"


@dataclass(frozen=True, slots=True)
class AssignmentDraft:
    """An assignment about to be written; `body(version)` is its JSON once its version is known."""

    node: str
    generation: int
    body: Callable[[int], str]


# The fleet's highest epoch counts, not the node's own: a replaced leader writes nothing (I1).
WRITE = statement(
    "write_assignments",
    """
    INSERT INTO assignment (node, epoch, generation, version, body, written_at)
    SELECT node, :epoch, generation, version, body, (SELECT moment())
    FROM unnest(CAST(:nodes AS text[]), CAST(:generations AS bigint[]), CAST(:versions AS bigint[]),
                CAST(:bodies AS text[])) AS draft (node, generation, version, body)
    WHERE :epoch >= (SELECT coalesce(max(epoch), 0) FROM assignment)
    ON CONFLICT (node) DO UPDATE SET
        epoch = excluded.epoch, generation = excluded.generation, version = excluded.version,
        body = excluded.body, written_at = excluded.written_at
    WHERE (assignment.epoch, assignment.generation) < (excluded.epoch, excluded.generation)
    RETURNING node, version
    """,
)
ENDPOINTS = statement("assignments_change_endpoints", "SELECT advance_endpoint()")
SINCE = statement(
    "assignments_since",
    """
    SELECT node, version, CASE WHEN node = ANY(CAST(:nodes AS text[])) THEN body END AS body
    FROM assignment WHERE version > :after ORDER BY version
    """,
)
OF_NODE = statement("assignment_of_node", "SELECT version, body FROM assignment WHERE node = :node")

LEAP = statement(
    "leap_assignments",
    """
    WITH leapt AS (
        SELECT node, epoch + :by AS epoch, generation + :by AS generation, version + :by AS version
        FROM assignment
    )
    UPDATE assignment SET
        epoch = leapt.epoch, generation = leapt.generation, version = leapt.version,
        body = CAST(CAST(body AS jsonb) || jsonb_build_object(
            'epoch', leapt.epoch, 'generation', leapt.generation, 'version', leapt.version) AS text)
    FROM leapt WHERE leapt.node = assignment.node
    """,
)


def write(connection: Connection, epoch: int, drafts: Sequence[AssignmentDraft]) -> dict[str, int]:
    """Writes assignments and wakes the nodes that wait for them; returns the version of each that was accepted.

    Refuses an assignment with an older epoch than any in the fleet, or no newer (epoch, generation) than its node's.
    """
    if not drafts:
        return {}
    newest = versions.lock(connection, STREAM)
    rows = list(enumerate(sorted(drafts, key=lambda draft: draft.node), start=newest + 1))
    written = connection.execute(
        WRITE,
        {
            "epoch": epoch,
            "nodes": [draft.node for _, draft in rows],
            "generations": [draft.generation for _, draft in rows],
            "versions": [version for version, _ in rows],
            "bodies": [draft.body(version) for version, draft in rows],
        },
    )
    taken = {row.node: row.version for row in written}
    if taken:
        versions.advance(connection, STREAM, newest + len(rows))
        connection.execute(ENDPOINTS)
    return taken


def newer_than(connection: Connection, after: int, bodies_of: Collection[str]) -> list[tuple[str, int, str | None]]:
    """Returns every node whose assignment is newer than `after`, with the body for the requested nodes."""
    found = connection.execute(SINCE, {"after": after, "nodes": list(bodies_of)})
    return [(row.node, row.version, row.body) for row in found]


def read_assignment(connection: Connection, node: str) -> tuple[int, str] | None:
    """Returns the node's assignment and its version."""
    row = connection.execute(OF_NODE, {"node": node}).one_or_none()
    return (row.version, row.body) if row else None


def leap(connection: Connection) -> None:
    """Reissues the restored assignments with versions above all that nodes have received since the backup."""
    connection.execute(LEAP, {"by": versions.LEAP_BY})
