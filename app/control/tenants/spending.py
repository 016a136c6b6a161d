"""What tenants have spent in this month: what they used of each node, at that node's price."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Connection

from app.store import clock, spending
from app.store.spending import GpuHours

EVERY = timedelta(minutes=5)  # budgets are for months


def spent(used: Iterable[GpuHours], price_per_hour: Mapping[str, float]) -> dict[str, float]:
    """By tenant, to the cent. A node that is no longer declared counts at the mean of those that are."""
    mean = sum(price_per_hour.values()) / len(price_per_hour) if price_per_hour else 0.0
    found: dict[str, float] = defaultdict(float)
    for one in used:
        found[one.tenant] += one.gpu_hours * price_per_hour.get(one.node, mean)
    return {tenant: round(amount, 2) for tenant, amount in sorted(found.items())}


@dataclass(slots=True)
class Spending:
    """Asks the database now and then, and remembers the answer."""

    _at: datetime | None = None
    _spent: Mapping[str, float] = field(default_factory=dict)

    def spent(self, connection: Connection, price_per_hour: Mapping[str, float]) -> Mapping[str, float]:
        """By tenant; prices are by node."""
        now = clock.now(connection)
        if self._at is None or not timedelta() <= now - self._at < EVERY or now.month != self._at.month:
            self._spent = spent(spending.this_month(connection), price_per_hour)
            self._at = now
        return self._spent
