"""The desired state of HAProxy: every source's routes, saved on disk, and the servers and backends that they make.

Routes that the control plane reports of a node are stored under the node's name with an underscore before it, which no
source's name can have. They count only while the node declares nothing here itself.

A route that HAProxy has refused is left out, here and on disk: it must not stop the others, nor HAProxy's next start.

A service is assigned to a backend slot. HAProxy 2.6 cannot add a backend at run time, so slots are created beforehand
and a map file assigns them; a new service needs no reload.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agents.contract.addresses import BadAddress, find_objection, parse_address
from agents.contract.gateways import LeftOutRoute
from agents.contract.paths import find_rules
from agents.gateway.balances import FIRST_SLOTS, Balance, balance_of
from agents.gateway.kinds import MOST_KINDS, TOO_MANY, AdmittedRules, SourcedRoute, find_crowding, list_kinds
from agents.gateway.wire import DeclaredRoutes, RouteSpec, ServiceLimit

MOST_SOURCES = 4096
FOLLOWED = "_"  # begins the source name of routes that come from the control plane
MOST_REASON = 500  # characters, as reports allow
LARGEST_WEIGHT = 256  # HAProxy's
MOST_OPEN = 512  # requests of a server, as long as its service has no overload


class Stale(Exception):
    """A newer declaration of this source came before."""

    def __init__(self, source: str, sequence: int) -> None:
        super().__init__(f"source {source} has already declared sequence {sequence}; declare again with a higher one")
        self.sequence = sequence


class Malformed(Exception):
    """The routes are contradictory, or an address cannot be reached."""


@dataclass(frozen=True, slots=True)
class HaproxyServer:
    """One copy as a server of HAProxy."""

    name: str
    source: str
    copy: str
    service: str
    host: str
    port: int
    weight: int  # 0: drained
    drained: bool
    most_open: int = MOST_OPEN


@dataclass(frozen=True, slots=True)
class RouteKey:
    """A route as HAProxy accepts or refuses it."""

    source: str
    copy: str
    address: str


@dataclass(frozen=True, slots=True)
class Desired:
    """Everything that must survive a restart of the sidecar, and what HAProxy has refused of it."""

    sources: Mapping[str, DeclaredRoutes] = field(default_factory=dict)
    slots: Mapping[str, int] = field(default_factory=dict)  # of services, from 1
    slot_count: int = FIRST_SLOTS
    limits: Mapping[str, ServiceLimit] = field(default_factory=dict)  # of services
    refused: Mapping[RouteKey, str] = field(default_factory=dict)  # with HAProxy's answers; not on disk
    most_open: Mapping[str, int] = field(default_factory=dict)  # of servers in an overload; not on disk
    # Of each service, the oldest first; not on disk.
    kinds: Mapping[str, Sequence[AdmittedRules]] = field(default_factory=dict, compare=False)

    def servers(self) -> tuple[HaproxyServer, ...]:
        """Returns every copy's server. Weights are rates, scaled by service so that the largest is HAProxy's."""
        routes = self.routes()
        largest: dict[str, float] = {}
        for _, route in routes:
            if not route.drained:
                largest[route.service] = max(largest.get(route.service, 0.0), route.weight)
        return tuple(
            _server(source, route, largest.get(route.service, 0.0), self.most_open) for source, route in routes
        )

    def routes(self) -> list[SourcedRoute]:
        """Returns the routes in force, with their sources."""
        return self._split_routes()[0]

    def _split_routes(self) -> tuple[list[SourcedRoute], list[SourcedRoute]]:
        """Returns the routes in force, and those of more kinds of copies than HAProxy asks for."""
        routes = self._list_accepted_routes()
        crowding = find_crowding(routes, self.find_kind, self.kinds)
        crowded = [
            not route.drained and self.find_kind(source, route) in crowding.get(route.service, ())
            for source, route in (routes if crowding else ())
        ]
        if not any(crowded):
            return routes, []
        pairs = list(zip(routes, crowded, strict=True))
        return [route for route, is_out in pairs if not is_out], [route for route, is_out in pairs if is_out]

    def find_kind(self, source: str, route: RouteSpec) -> AdmittedRules:
        """Returns what the copy admits."""
        return find_rules(self.sources[source].paths, route.paths)

    def _list_accepted_routes(self) -> list[SourcedRoute]:
        """Returns what a node declares, else what the control plane reports of it."""
        own = [
            (source, route)
            for source, declared in self.sources.items()
            if not is_followed(source)
            for route in self.accepted(source, declared)
        ]
        speaking = {source for source, declared in self.sources.items() if declared.routes and not is_followed(source)}
        taken = {route.address for _, route in own}
        followed = [
            (source, route)
            for source, declared in self.sources.items()
            if is_followed(source) and source.removeprefix(FOLLOWED) not in speaking
            for route in self.accepted(source, declared)
            if route.address not in taken
        ]
        return sorted(own + followed, key=lambda pair: pair[0])

    def accepted(self, source: str, declared: DeclaredRoutes) -> tuple[RouteSpec, ...]:
        """Returns the routes that HAProxy has not refused."""
        return tuple(
            route for route in declared.routes if RouteKey(source, route.copy, route.address) not in self.refused
        )

    def left_out(self) -> tuple[LeftOutRoute, ...]:
        """Returns what HAProxy has refused, and copies of too many kinds."""
        crowded = self._split_routes()[1]
        found = [(key.source, key.copy, why) for key, why in self.refused.items()]
        found += [(source, route.copy, TOO_MANY.format(route.service, MOST_KINDS)) for source, route in crowded]
        return tuple(
            LeftOutRoute(source.removeprefix(FOLLOWED), copy, why[:MOST_REASON]) for source, copy, why in found
        )

    def group_by_slot(self) -> dict[int, dict[str, HaproxyServer]]:
        """Returns the servers of every slot that has any."""
        found: dict[int, dict[str, HaproxyServer]] = {}
        for server in self.servers():
            found.setdefault(self.slots[server.service], {})[server.name] = server
        return found


def is_followed(source: str) -> bool:
    """Returns whether the source's routes come from the control plane."""
    return source.startswith(FOLLOWED)


def _server(source: str, route: RouteSpec, largest: float, most_open: Mapping[str, int]) -> HaproxyServer:
    host, port = split_address(route.address)
    weight = 0 if route.drained else max(1, round(LARGEST_WEIGHT * route.weight / largest))
    name = server_name(source, route.copy)
    most = min(most_open.get(name, MOST_OPEN), MOST_OPEN)
    return HaproxyServer(name, source, route.copy, route.service, host, port, weight, route.drained, most)


def server_name(source: str, copy: str) -> str:
    """Returns the server's name in HAProxy: unique across sources, and of allowed characters."""
    safe = "".join(sign if sign.isalnum() or sign in ".-" else f"_{ord(sign):02x}" for sign in copy)
    return f"{source}:{safe}"


def split_address(address: str) -> tuple[str, int]:
    """Splits `10.0.0.1:8000` or `[::1]:8000` into host and port; raises Malformed for what no copy can have."""
    try:
        known = parse_address(address)
    except BadAddress as error:
        raise Malformed(str(error)) from None
    objection = find_objection(known)
    if objection:
        raise Malformed(objection)
    return str(known.host), known.port


def declare(desired: Desired, source: str, declared: DeclaredRoutes) -> Desired:
    """Returns the desired state with this source's routes; raises Stale or Malformed."""
    held = desired.sources.get(source)
    if held and (declared.sequence < held.sequence or (declared.sequence == held.sequence and declared != held)):
        raise Stale(source, held.sequence)
    if held is None and sum(not is_followed(name) for name in desired.sources) >= MOST_SOURCES:
        raise Malformed(f"there are {MOST_SOURCES} sources already")
    copies: set[str] = set()
    for route in declared.routes:
        if route.copy in copies:
            raise Malformed(f"copy {route.copy} occurs twice")
        copies.add(route.copy)
        split_address(route.address)
    return _keep_kinds(_forget_old_refusals(replace(desired, sources={**desired.sources, source: declared})))


def follow(desired: Desired, sources: Mapping[str, DeclaredRoutes], limits: Mapping[str, ServiceLimit]) -> Desired:
    """Returns the desired state with the control plane's routes and limits; nodes' own routes stay."""
    own = {source: declared for source, declared in desired.sources.items() if not is_followed(source)}
    return _keep_kinds(_forget_old_refusals(replace(desired, sources=own | dict(sources), limits=dict(limits))))


def refuse(desired: Desired, refused: Mapping[str, str]) -> Desired:
    """Returns the desired state without the servers of these names, which HAProxy has refused with these answers."""
    found = {
        RouteKey(source, route.copy, route.address): refused[server_name(source, route.copy)]
        for source, route in desired.routes()
        if server_name(source, route.copy) in refused
    }
    return replace(desired, refused={**desired.refused, **found})


def _keep_kinds(desired: Desired) -> Desired:
    """Notes which kinds of copies are in force, so that no newer kind takes their place."""
    return replace(desired, kinds=list_kinds(desired.routes(), desired.find_kind, desired.kinds))


def _forget_old_refusals(desired: Desired) -> Desired:
    """Forgets refusals of routes that are no longer declared."""
    if not desired.refused:
        return desired
    declared = {
        RouteKey(source, route.copy, route.address)
        for source, routes in desired.sources.items()
        for route in routes.routes
    }
    return replace(desired, refused={key: why for key, why in desired.refused.items() if key in declared})


def give_slots(desired: Desired, idle: Collection[int]) -> Desired:
    """Gives every service a slot, before its first copy and after its last: callers get Retry-After, and their requests
    count. An `idle` slot (not declared, no copy, no request anywhere) is reused only when no other is free."""
    wanted = {route.service for declared in desired.sources.values() for route in declared.routes}
    wanted |= desired.limits.keys()
    slots, count = dict(desired.slots), desired.slot_count
    free = sorted(set(range(1, count + 1)) - set(slots.values()), reverse=True)
    for service in sorted(name for name, limit in desired.limits.items() if limit.tpot_ms):
        wants = Balance.PREFIX if desired.limits[service].by_prefix else Balance.LEAST_TOKENS
        fitting = [slot for slot in free if balance_of(slot) is wants]
        if fitting and not (service in slots and balance_of(slots[service]) is wants):
            slots[service] = fitting[-1]
            free.remove(fitting[-1])
    reusable = sorted(
        (service for service, slot in slots.items() if service not in wanted and slot in idle), reverse=True
    )
    for service in sorted(wanted - set(slots)):
        if free:
            slots[service] = free.pop()
        elif reusable:
            slots[service] = slots.pop(reusable.pop())
        else:
            free = list(range(count * 2, count, -1))
            count *= 2
            slots[service] = free.pop()
    return replace(desired, slots=slots, slot_count=count)


def servers_by_name(servers: Iterable[HaproxyServer]) -> dict[str, HaproxyServer]:
    return {server.name: server for server in servers}
