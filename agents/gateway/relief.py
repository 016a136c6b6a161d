"""Checks every service for overload twice a second, and lowers the limits of overloaded ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from agents.gateway.desired import FOLLOWED, Desired, is_followed, server_name
from agents.gateway.haproxy.haproxy import ObservedHaproxy
from agents.gateway.overload import Pressure, ReadyCopy, ServiceLoad, ServiceTarget, update_pressure
from agents.gateway.wire import RouteSpec, ServiceLimit

LEAVING_SHARE = 0.25  # of a service's limit: fewer requests at drained copies do not matter


class Relief:
    """The overload state of services that have an SLO and may be limited."""

    def __init__(self) -> None:
        self.open: Mapping[str, int] = {}  # by service, at the last look
        self.most_open: Mapping[str, int] = {}  # by service in an overload
        self.by_server: Mapping[str, int] = {}  # the same of HAProxy's servers, where batches are known
        self.leaving: Mapping[str, int] = {}  # by service: open requests at drained copies, which keep no other out
        self._pressures: dict[str, Pressure] = {}

    def look(
        self,
        desired: Desired,
        observed: ObservedHaproxy | None,
        ended: Mapping[str, tuple[int, int]],
        open_by_slot: Mapping[int, int],
        leaving_by_slot: Mapping[int, int],
        now: float,
    ) -> bool:
        """Updates every service's limit; returns whether one changed. `ended`: finished and turned away requests."""
        self.open = {name: open_by_slot.get(slot, 0) for name, slot in desired.slots.items()}
        leaving = {name: leaving_by_slot.get(slot, 0) for name, slot in desired.slots.items()}
        ready = _ready_copies(desired, observed)
        pressures = {}
        for name, limit in desired.limits.items():
            # Of a language model nothing tells yet how many open requests are too many: its server limits its queue.
            if limit.slo_ms > 0 and limit.queue_limit and not limit.tpot_ms:
                finished, turned_away = ended.get(name, (0, 0))
                waiting = max(0, self.open.get(name, 0) - leaving.get(name, 0))
                counted = ServiceLoad(finished, turned_away, waiting, ready.get(name, {}))
                target = ServiceTarget(limit.slo_ms / 1000, limit.percentile, 0 < limit.shed_share < 1)
                pressures[name] = update_pressure(self._pressures.get(name), counted, target, now)
        before = self.most_open, self.by_server, self.leaving
        self.leaving = {
            name: max(count, self.leaving.get(name, 0))  # it falls from look to look, and HAProxy takes each change
            for name, count in leaving.items()
            if count >= LEAVING_SHARE * desired.limits.get(name, ServiceLimit()).queue_limit > 0
        }
        self._pressures = pressures
        self.most_open = {name: pressure.most_open for name, pressure in pressures.items() if pressure.most_open}
        self.by_server = {name: most for pressure in pressures.values() for name, most in pressure.by_copy.items()}
        return (self.most_open, self.by_server, self.leaving) != before

    def applied(self, desired: Desired) -> Desired:
        """Returns what is desired, with the limits of overloaded services."""
        if not (self.most_open or self.leaving):
            return desired
        limits = {name: self._drop_leaving(name, self._lower(name, limit)) for name, limit in desired.limits.items()}
        return replace(desired, limits=limits, most_open={**self._limit_new_copies(desired), **self.by_server})

    def _limit_new_copies(self, desired: Desired) -> dict[str, int]:
        """Returns the limits of copies until they are looked at: the least of their service."""
        least = {name: min(pressure.by_copy.values()) for name, pressure in self._pressures.items() if pressure.by_copy}
        routes = (item for item in desired.routes() if item[1].service in least)
        return {server_name(source, route.copy): least[route.service] for source, route in routes}

    def _drop_leaving(self, name: str, limit: ServiceLimit) -> ServiceLimit:
        """Returns the limit with the room that requests at drained copies take: HAProxy counts them, too."""
        return structs.replace(limit, queue_limit=limit.queue_limit + self.leaving.get(name, 0))

    def _lower(self, name: str, limit: ServiceLimit) -> ServiceLimit:
        """Returns the limit in an overload. Where copies have limits, the service's leaves room for all of them."""
        if name not in self.most_open:
            return limit
        if self._pressures[name].by_copy:
            most = max(self.most_open[name], limit.queue_limit)
            return structs.replace(limit, queue_limit=most, shed_share=0.0, by_copy=True)
        return structs.replace(limit, queue_limit=min(self.most_open[name], limit.queue_limit))


def list_drained(desired: Desired) -> frozenset[str]:
    """Returns the servers of copies that get no more requests."""
    return frozenset(server_name(source, route.copy) for source, route in desired.routes() if route.drained)


def _ready_copies(desired: Desired, observed: ObservedHaproxy | None) -> dict[str, dict[str, ReadyCopy]]:
    """Returns the ready copies of each service by their servers' names."""
    announced = {
        (source.removeprefix(FOLLOWED), route.copy): route.in_time
        for source, declared in desired.sources.items()
        if is_followed(source)
        for route in declared.routes
    }
    ready: dict[str, dict[str, ReadyCopy]] = {}
    for source, route in desired.routes():
        name = server_name(source, route.copy)
        server = observed.servers.get(name) if observed else None
        if not route.drained and (server is None or server.ready):
            in_time = _count_in_time(source, route, announced)
            ready.setdefault(route.service, {})[name] = ReadyCopy(route.weight, in_time)
    return ready


def _count_in_time(source: str, route: RouteSpec, announced: Mapping[tuple[str, str], int]) -> int:
    """Returns how many open requests the copy answers in time; a node does not say so, the control plane does."""
    return route.in_time or announced.get((source.removeprefix(FOLLOWED), route.copy), 0)
