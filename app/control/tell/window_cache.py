"""Keeps the sums that SLOs are assessed by: they run over a month of rows, and any reader may ask for them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from app.store.database.database import Database, Unavailable
from app.store.fleet import loads
from app.store.fleet.loads import WindowSums

KEPT_FOR = 20  # times as long as the summing took: it takes at most this part of one connection's time
LONGEST_SECONDS = 60.0
MOST_TENANTS = 64


@dataclass(frozen=True, slots=True)
class CachedSums:
    sums: WindowSums
    until: float  # time.monotonic()


class WindowCache:
    """Sums for all tenants and for each, one at a time; callers meanwhile get the previous sums."""

    def __init__(self) -> None:
        self._by_tenant: OrderedDict[str, CachedSums] = OrderedDict()
        self._summing = threading.Lock()
        self._resting_until = 0.0  # after a failure: the next would take as long

    def read(self, database: Database, tenant: str = "") -> WindowSums:
        """Returns the sums of a tenant's services, or of all. Call it outside of a transaction: it may wait."""
        cached = self._by_tenant.get(tenant)
        if cached and time.monotonic() < cached.until:
            return cached.sums
        if not self._summing.acquire(blocking=cached is None):
            assert cached is not None
            return cached.sums
        try:
            cached = self._by_tenant.get(tenant)
            if cached and time.monotonic() < cached.until:
                return cached.sums
            return self._sum(database, tenant)
        finally:
            self._summing.release()

    def _sum(self, database: Database, tenant: str) -> WindowSums:
        begun = time.monotonic()
        if begun < self._resting_until:
            raise Unavailable("the loads of services could not be summed in time; try again later")
        try:
            sums = database.read(lambda connection: loads.count_in_windows(connection, tenant))
        except Unavailable:
            self._resting_until = time.monotonic() + _cache_seconds(begun)
            raise
        self._by_tenant[tenant] = CachedSums(sums, time.monotonic() + _cache_seconds(begun))
        self._by_tenant.move_to_end(tenant)
        if len(self._by_tenant) > MOST_TENANTS:
            self._by_tenant.popitem(last=False)
        return sums


def _cache_seconds(begun: float) -> float:
    return min(LONGEST_SECONDS, KEPT_FOR * (time.monotonic() - begun))
