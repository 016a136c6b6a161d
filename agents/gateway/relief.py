"""Checks every service for overload twice a second, and lowers the limits of overloaded ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agents.gateway.desired import Desired, server_name
from agents.gateway.haproxy import ObservedHaproxy
from agents.gateway.overload import Pressure, ServiceLoad, update_pressure
from agents.gateway.wire import ServiceLimit


class Relief:
    """The overload state of services that have an SLO and may be limited."""

    def __init__(self) -> None:
        self.open: Mapping[str, int] = {}  # by service, at the last look
        self.most_open: Mapping[str, int] = {}  # by service in an overload
        self._pressures: dict[str, Pressure] = {}

    def look(
        self,
        desired: Desired,
        observed: ObservedHaproxy | None,
        ended: Mapping[str, tuple[int, int]],
        open_by_slot: Mapping[int, int],
        now: float,
    ) -> bool:
        """Updates every service's limit; returns whether one changed. `ended`: finished and turned away requests."""
        self.open = {name: open_by_slot.get(slot, 0) for name, slot in desired.slots.items()}
        ready: dict[str, dict[str, float]] = {}
        for source, route in desired.routes():
            server = observed.servers.get(server_name(source, route.copy)) if observed else None
            if not route.drained and (server is None or server.ready):
                ready.setdefault(route.service, {})[f"{source}:{route.copy}"] = route.weight
        pressures = {}
        for name, limit in desired.limits.items():
            if limit.slo_ms > 0 and limit.queue_limit:
                over, turned_away = ended.get(name, (0, 0))
                counted = ServiceLoad(over, turned_away, self.open.get(name, 0), ready.get(name, {}))
                pressures[name] = update_pressure(self._pressures.get(name), counted, limit.slo_ms / 1000, now)
        before = self.most_open
        self._pressures = pressures
        self.most_open = {name: pressure.most_open for name, pressure in pressures.items() if pressure.most_open}
        return self.most_open != before

    def applied(self, desired: Desired) -> Desired:
        """Returns what is desired, with the limits of overloaded services."""
        if not self.most_open:
            return desired
        limits = {name: self._lower(name, limit) for name, limit in desired.limits.items()}
        return replace(desired, limits=limits)

    def _lower(self, name: str, limit: ServiceLimit) -> ServiceLimit:
        most = self.most_open.get(name, limit.queue_limit)
        if most >= limit.queue_limit:
            return limit
        return ServiceLimit(most, limit.shed_share, limit.retry_after_seconds, limit.slo_ms)
