"""Counts the GPUs that nodes and pools declare."""

from __future__ import annotations

from sqlalchemy import Connection

from app.store.database.database import statement

GPUS_OF_NODES = statement(
    "gpus_of_nodes",
    """
    SELECT name, spec ->> 'gpuType' AS gpu_type, CAST(spec ->> 'gpus' AS integer) AS gpus
    FROM object WHERE kind = 'Node' AND NOT spec ? 'pool'
    UNION ALL
    SELECT 'pool/' || name, spec ->> 'gpuType',
        CAST(spec ->> 'max' AS integer) * CAST(spec ->> 'gpusPerNode' AS integer)
    FROM object WHERE kind = 'Pool'
    """,
)


def gpus_of_nodes(connection: Connection) -> dict[str, tuple[str, int]]:
    """Returns the GPU type and the number of GPUs by node, and of each pool as many as it may rent."""
    return {row.name: (row.gpu_type, row.gpus) for row in connection.execute(GPUS_OF_NODES)}
