"""Counts the GPUs that nodes declare."""

from __future__ import annotations

from sqlalchemy import Connection

from app.store.database.database import statement

GPUS_OF_NODES = statement(
    "gpus_of_nodes",
    """
    SELECT name, spec ->> 'gpuType' AS gpu_type, CAST(spec ->> 'gpus' AS integer) AS gpus
    FROM object WHERE kind = 'Node'
    """,
)


def gpus_of_nodes(connection: Connection) -> dict[str, tuple[str, int]]:
    """Returns the GPU type and the number of GPUs by node."""
    return {row.name: (row.gpu_type, row.gpus) for row in connection.execute(GPUS_OF_NODES)}
