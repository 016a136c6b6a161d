"""Every declared node with its state, for a map of the fleet: one read, without the specs of other objects."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.manifests.model import Free
from app.store.database.database import statement

_NODES = """
    SELECT object.name, object.spec ->> 'gpuType' AS gpu_type, CAST(object.spec ->> 'gpus' AS int) AS gpus,
           node_state.received_at, node_detail.detail -> 'gpus' AS ailing,
           coalesce(object.status ->> 'reclaimAt', '') AS reclaim_at,
           coalesce(closed.mode, '') AS closed, closed.asked_at AS closed_at,
           ARRAY(SELECT cordon.gpu FROM cordon WHERE cordon.node = object.name AND cordon.gpu >= 0 ORDER BY cordon.gpu)
               AS closed_gpus
    FROM object
    LEFT JOIN cordon AS closed ON closed.node = object.name AND closed.gpu < 0
    LEFT JOIN node_state ON node_state.node = object.name
    LEFT JOIN node_detail ON node_detail.node = object.name
    WHERE object.kind = 'Node' AND object.tenant = '' {named}
    ORDER BY object.name
"""
NODES = statement("nodes_on_the_map", _NODES.format(named=""))
NAMED_NODES = statement("named_nodes_on_the_map", _NODES.format(named="AND object.name = ANY(CAST(:names AS text[]))"))
HOLDS_NOTHING = ("gone", "swapped")  # stages of a copy that has left its GPU
# The detail is taken apart once for a node: without the fences its owners would be read again for each copy.
_COPIES = """
    SELECT node, CAST(gpu AS int), coalesce(owner ->> 'tenant', ''),
           coalesce(owner ->> 'service', owner ->> 'job', ''), coalesce(CAST(copy ->> 'smPercent' AS float8), 0),
           copy ->> 'stage'
    FROM node_detail, LATERAL (
        SELECT copy, owners -> (copy ->> 'instance') AS owner
        FROM (SELECT detail -> 'owners' AS owners, detail -> 'copies' AS copies OFFSET 0) AS once,
             jsonb_array_elements(coalesce(copies, '[]')) AS copy
        OFFSET 0
    ) AS known, jsonb_array_elements_text(coalesce(copy -> 'gpus', jsonb_build_array(copy -> 'gpu'))) AS gpu
    WHERE copy ->> 'stage' <> ALL(CAST(:stages AS text[])) AND CAST(:tenant AS text) IN ('', owner ->> 'tenant')
        {of_node}
    ORDER BY 1, 2, 3, 4, 6
"""
COPIES = statement("copies_on_the_map", _COPIES.format(of_node=""))
COPIES_OF_NODE = statement("copies_of_node", _COPIES.format(of_node="AND node = :node"))
MEMORY = statement(
    "memory_of_gpu_types",
    """
    SELECT name, CAST(spec ->> 'memoryGib' AS double precision) AS memory_gib FROM object
    WHERE kind = 'GpuType' AND tenant = ''
    """,
)


@dataclass(frozen=True, slots=True)
class MapNode:
    """A declared node; `ailing` are its unhealthy GPUs, `reclaim_at` is when its cloud takes it back.

    `closed` says why plans put nothing new on it: `cordon`, `drain`, or `cluster` where its cluster drains it.
    """

    name: str
    gpu_type: str
    gpus: int
    received_at: datetime | None
    ailing: Sequence[Free] | None
    reclaim_at: str = ""
    closed: str = ""
    closed_at: datetime | None = None
    closed_gpus: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class ReportedCopy:
    """A copy of a service or job that a node reports on a GPU; without a name its owner is unknown."""

    node: str
    gpu: int
    name: str  # tenant/name
    sm_percent: float
    stage: str


def nodes(connection: Connection) -> list[MapNode]:
    """Returns every declared node."""
    return [MapNode(*row) for row in connection.execute(NODES)]


def read_named_nodes(connection: Connection, names: Collection[str]) -> list[MapNode]:
    """Returns the declared nodes of these names."""
    return [MapNode(*row) for row in connection.execute(NAMED_NODES, {"names": list(names)})] if names else []


def read_copies(connection: Connection, tenant: str, node: str = "") -> list[ReportedCopy]:
    """Returns what nodes report on their GPUs, or one of them; a tenant's own for a tenant."""
    sql, values = (COPIES_OF_NODE, {"node": node}) if node else (COPIES, {})
    rows = connection.execute(sql, {"tenant": tenant, "stages": list(HOLDS_NOTHING), **values})
    return [
        ReportedCopy(node, gpu, owner and f"{owner}/{name}", sm, stage) for node, gpu, owner, name, sm, stage in rows
    ]


def memory_gib(connection: Connection) -> dict[str, float]:
    """Returns the memory of each GPU type."""
    return {row.name: row.memory_gib for row in connection.execute(MEMORY)}
