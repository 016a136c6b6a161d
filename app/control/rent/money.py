"""The money of pools: what their nodes cost an hour now, and what they have cost since a moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.control.domain.specs import node_price
from app.store.fleet import rented_pools
from app.store.fleet.rented_pools import PoolHours, PoolNow

NO_HOURS = PoolHours(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class PoolMoney:
    """A pool's nodes of now, their price, and with hours since a moment at the price of now."""

    pool: str
    nodes: int
    starting: int
    per_hour: float
    wasted_minutes: float  # of the nodes of now, or since the moment
    node_hours: float = 0.0
    cost: float = 0.0


def price_pool(pool: PoolNow, hours: Mapping[str, PoolHours] | None = None) -> PoolMoney:
    """Returns what a pool costs; `hours` are those since a moment."""
    each = node_price(pool.spec, pool.gpu_type) * int(pool.spec["gpusPerNode"])
    mine = None if hours is None else hours.get(pool.pool, NO_HOURS)
    wasted = pool.wasted_minutes if mine is None else mine.wasted_minutes
    node_hours = mine.node_hours if mine else 0.0
    return PoolMoney(pool.pool, pool.nodes, pool.starting, pool.nodes * each, wasted, node_hours, node_hours * each)


def read_pools(connection: Connection, since: datetime | None = None) -> list[PoolMoney]:
    """Returns the money of each declared pool, by name."""
    pools = rented_pools.read_now(connection)
    hours = rented_pools.read_hours(connection, since) if since and pools else None
    return [price_pool(pool, hours) for pool in pools]
