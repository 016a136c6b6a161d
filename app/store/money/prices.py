"""Dated prices, and the GPUs that are paid for with their dates: rows are opened once and closed once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection

from app.store.database.database import statement


class Priced(NamedTuple):
    """A GPU type in a region with its kind of purchase, and the price of its hour in billionths."""

    gpu_type: str
    region: str
    purchase: str
    nano_per_hour: int


class PricedGpus(NamedTuple):
    """The GPUs of a node that are paid for."""

    node: str
    gpus: int
    gpu_type: str
    region: str
    purchase: str
    memory_gib: float


_PRICED = """
    unnest(CAST(:gpu_types AS text[]), CAST(:regions AS text[]), CAST(:purchases AS text[]), CAST(:nanos AS bigint[]))
        AS wanted (gpu_type, region, purchase, nano_per_hour)
"""
_OWNED = """
    unnest(CAST(:nodes AS text[]), CAST(:gpus AS int[]), CAST(:gpu_types AS text[]), CAST(:regions AS text[]),
           CAST(:purchases AS text[]), CAST(:memories AS double precision[]))
        AS wanted (node, gpus, gpu_type, region, purchase, memory_gib)
"""
# If the clock was set back, rows of no duration remain, but never two rows at once.
CLOSE_PRICES = statement(
    "close_prices",
    f"""
    UPDATE price AS known SET valid_to = greatest(known.valid_from, CAST(:now AS timestamptz))
    WHERE valid_to IS NULL AND gpu_type = ANY(CAST(:of AS text[])) AND NOT EXISTS (
        SELECT FROM {_PRICED}
        WHERE (wanted.gpu_type, wanted.region, wanted.purchase, wanted.nano_per_hour)
            = (known.gpu_type, known.region, known.purchase, known.nano_per_hour))
    """,
)
OPEN_PRICES = statement(
    "open_prices",
    f"""
    INSERT INTO price (gpu_type, region, purchase, nano_per_hour, valid_from)
    SELECT gpu_type, region, purchase, nano_per_hour, greatest(CAST(:now AS timestamptz), (
        SELECT max(valid_to) FROM price AS before WHERE (before.gpu_type, before.region, before.purchase)
            = (wanted.gpu_type, wanted.region, wanted.purchase)))
    FROM {_PRICED}
    WHERE NOT EXISTS (SELECT FROM price AS known WHERE known.valid_to IS NULL
        AND (known.gpu_type, known.region, known.purchase) = (wanted.gpu_type, wanted.region, wanted.purchase))
    """,
)
CLOSE_OWNED = statement(
    "close_owned_gpus",
    f"""
    UPDATE gpu_owned AS known SET valid_to = greatest(known.valid_from, CAST(:now AS timestamptz))
    WHERE valid_to IS NULL AND node = ANY(CAST(:of AS text[])) AND NOT EXISTS (
        SELECT FROM {_OWNED}
        WHERE (wanted.node, wanted.gpus, wanted.gpu_type, wanted.region, wanted.purchase, wanted.memory_gib)
            = (known.node, known.gpus, known.gpu_type, known.region, known.purchase, known.memory_gib))
    """,
)
OPEN_OWNED = statement(
    "open_owned_gpus",
    f"""
    INSERT INTO gpu_owned (node, gpus, gpu_type, region, purchase, memory_gib, valid_from)
    SELECT node, gpus, gpu_type, region, purchase, memory_gib, greatest(CAST(:now AS timestamptz), (
        SELECT max(valid_to) FROM gpu_owned AS before WHERE before.node = wanted.node))
    FROM {_OWNED}
    WHERE NOT EXISTS (SELECT FROM gpu_owned AS known WHERE known.valid_to IS NULL AND known.node = wanted.node)
    """,
)
# A node is accounted for from the beginning of its quarter-hour until its last GPU is given back.
BEGIN_ACCOUNT = statement(
    "begin_accounts",
    """
    INSERT INTO ledger_node AS known (node, allocated_until, owned_until)
    SELECT node, date_bin('15 minutes', min(valid_from), '1970-01-01Z'),
           CASE WHEN bool_or(valid_to IS NULL) THEN NULL ELSE max(valid_to) END
    FROM gpu_owned WHERE node = ANY(CAST(:of AS text[])) GROUP BY node ORDER BY node
    ON CONFLICT (node) DO UPDATE SET owned_until = excluded.owned_until
    WHERE known.owned_until IS DISTINCT FROM excluded.owned_until
    """,
)
OWNED_OF_TYPES = statement(
    "owned_gpus_of_types",
    """
    SELECT node, gpus, gpu_type, region, purchase, memory_gib FROM gpu_owned
    WHERE valid_to IS NULL AND gpu_type = ANY(CAST(:of AS text[]))
    """,
)
WAYS = statement(
    "ways_of_having_gpus",
    """
    SELECT gpu_type, region, purchase FROM price WHERE valid_to IS NULL AND gpu_type = ANY(CAST(:of AS text[]))
    UNION
    SELECT gpu_type, region, purchase FROM gpu_owned WHERE valid_to IS NULL AND gpu_type = ANY(CAST(:of AS text[]))
    """,
)
NOT_OWNED = statement(
    "nodes_not_accounted_for",
    """
    SELECT name FROM object WHERE kind = 'Node' AND tenant = '' AND NOT EXISTS (
        SELECT FROM gpu_owned WHERE valid_to IS NULL AND gpu_owned.node = object.name)
    ORDER BY name
    """,
)


def record_ownership(connection: Connection, of: Collection[str], wanted: Sequence[PricedGpus], now: datetime) -> None:
    """Records that from now on these nodes have these GPUs, and that the other nodes of `of` have none."""
    columns: list[list[object]] = [list(column) for column in zip(*wanted, strict=True)] or [
        [] for _ in PricedGpus._fields
    ]
    names = ("nodes", "gpus", "gpu_types", "regions", "purchases", "memories")
    given = dict(zip(names, columns, strict=True)) | {"of": sorted(of), "now": now}
    connection.execute(CLOSE_OWNED, given)
    connection.execute(OPEN_OWNED, given)
    connection.execute(BEGIN_ACCOUNT, given)


def record_prices(connection: Connection, of: Collection[str], wanted: Sequence[Priced], now: datetime) -> None:
    """Records these prices from now on; other GPUs of these types have no price."""
    columns: list[list[object]] = [list(column) for column in zip(*wanted, strict=True)] or [[] for _ in Priced._fields]
    names = ("gpu_types", "regions", "purchases", "nanos")
    given = dict(zip(names, columns, strict=True)) | {"of": sorted(of), "now": now}
    connection.execute(CLOSE_PRICES, given)
    connection.execute(OPEN_PRICES, given)


def nodes_with(connection: Connection, gpu_types: Collection[str]) -> list[PricedGpus]:
    """Returns the nodes that have GPUs of these types now."""
    return [PricedGpus(*row) for row in connection.execute(OWNED_OF_TYPES, {"of": sorted(gpu_types)})]


def purchase_ways(connection: Connection, gpu_types: Collection[str]) -> set[tuple[str, str, str]]:
    """Returns every (type, region, purchase) of these types that a node has now or that has a price."""
    return {(*row,) for row in connection.execute(WAYS, {"of": sorted(gpu_types)})}


def list_unowned_nodes(connection: Connection) -> list[str]:
    """Returns declared nodes without a GPU that is paid for: they were declared before there was a ledger."""
    return list(connection.execute(NOT_OWNED).scalars())
