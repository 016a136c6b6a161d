"""Reads what tenants have spent this month from the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Connection

from app.manifests.prices import NANO
from app.store.money import spending

REFRESH_INTERVAL = timedelta(minutes=5)  # often enough for monthly budgets


@dataclass(slots=True)
class SpendingCache:
    """Asks the database at intervals, and remembers the answer."""

    _at: datetime | None = None
    _spent: Mapping[str, float] = field(default_factory=dict)

    def spent(self, connection: Connection, now: datetime) -> Mapping[str, float]:
        """Returns the spending by tenant, rounded to cents."""
        if self._at is None or not timedelta() <= now - self._at < REFRESH_INTERVAL or now.month != self._at.month:
            self._spent = {tenant: round(nano / NANO, 2) for tenant, nano in spending.this_month(connection).items()}
            self._at = now
        return self._spent
