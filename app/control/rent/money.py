"""The money of pools: what their nodes cost an hour now, and what they have cost since a moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection

from app.control.domain.specs import node_price
from app.store.fleet import rented_pools
from app.store.fleet.rented_pools import PoolHours, PoolNow

NO_HOURS = PoolHours(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class PoolMoney:
    """A pool's nodes of now at the price of now, and what nodes have cost since a moment, as the ledger prices them."""

    pool: str
    nodes: int
    starting: int
    per_hour: float | None  # None: it was deleted
    wasted_minutes: float = 0.0
    node_hours: float = 0.0
    cost: float = 0.0


def price_pool(pool: PoolNow, hours: PoolHours) -> PoolMoney:
    """Returns what a pool costs; `hours` are those since a moment."""
    per_hour = None
    if pool.spec is not None and pool.gpu_type is not None:
        per_hour = pool.nodes * node_price(pool.spec, pool.gpu_type) * int(pool.spec["gpusPerNode"])
    return PoolMoney(
        pool.pool, pool.nodes, pool.starting, per_hour, hours.wasted_minutes, hours.node_hours, hours.cost
    )  # fmt: skip


def find_month(at: datetime) -> datetime:
    """Returns when the month began, UTC."""
    return at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def read_pools(connection: Connection, since: datetime) -> list[PoolMoney]:
    """Returns the money of each pool by name: those that are declared or have nodes, or have had some since then."""
    hours = rented_pools.read_hours(connection, since)
    ended = {name: PoolNow(name, None, None, 0, 0) for name in hours}
    pools = ended | {pool.pool: pool for pool in rented_pools.read_now(connection)}
    return [price_pool(pool, hours.get(name, NO_HOURS)) for name, pool in sorted(pools.items())]
