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
COPIES = statement(
    "copies_on_the_map",
    """
    SELECT node, CAST(gpu AS int), owner ->> 'tenant', coalesce(owner ->> 'service', owner ->> 'job'),
           max(coalesce(CAST(copy ->> 'smPercent' AS float8), 0))
    FROM node_detail, jsonb_array_elements(coalesce(detail -> 'copies', '[]')) AS copy,
         jsonb_array_elements_text(coalesce(copy -> 'gpus', jsonb_build_array(copy -> 'gpu'))) AS gpu,
         LATERAL (SELECT detail -> 'owners' -> (copy ->> 'instance') AS owner) AS known
    WHERE copy ->> 'stage' <> 'gone' AND CAST(:tenant AS text) IN ('', owner ->> 'tenant')
    GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
    """,
)
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
    """The largest copy of a service or job that a node reports on a GPU."""

    node: str
    gpu: int
    name: str  # tenant/name
    sm_percent: float


def nodes(connection: Connection) -> list[MapNode]:
    """Returns every declared node."""
    return [MapNode(*row) for row in connection.execute(NODES)]


def read_named_nodes(connection: Connection, names: Collection[str]) -> list[MapNode]:
    """Returns the declared nodes of these names."""
    return [MapNode(*row) for row in connection.execute(NAMED_NODES, {"names": list(names)})] if names else []


def read_copies(connection: Connection, tenant: str) -> list[ReportedCopy]:
    """Returns what nodes report on their GPUs, a copy of each service and job; a tenant's own for a tenant."""
    rows = connection.execute(COPIES, {"tenant": tenant})
    return [ReportedCopy(node, gpu, f"{owner}/{name}", sm) for node, gpu, owner, name, sm in rows if owner and name]


def memory_gib(connection: Connection) -> dict[str, float]:
    """Returns the memory of each GPU type."""
    return {row.name: row.memory_gib for row in connection.execute(MEMORY)}
