"""The desired state of HAProxy: every source's routes, saved on disk, and the servers and backends that they make.

Routes that the control plane reports of a node are stored under the node's name with an underscore before it, which no
source's name can have. They count only while the node declares nothing here itself.

A service is assigned to a backend slot. HAProxy 2.6 cannot add a backend at run time, so slots are created beforehand
and a map file assigns them; a new service needs no reload.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from agents.gateway.wire import DeclaredRoutes, RouteSpec, ServiceLimit
from agents.host import durable

FIRST_SLOTS = 64
MOST_SOURCES = 4096
FOLLOWED = "_"  # begins the source name of routes that come from the control plane
LARGEST_WEIGHT = 256  # HAProxy's


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


@dataclass(frozen=True, slots=True)
class Desired:
    """Everything that must survive a restart of the sidecar."""

    sources: Mapping[str, DeclaredRoutes] = field(default_factory=dict)
    slots: Mapping[str, int] = field(default_factory=dict)  # of services, from 1
    slot_count: int = FIRST_SLOTS
    limits: Mapping[str, ServiceLimit] = field(default_factory=dict)  # of services

    def servers(self) -> tuple[HaproxyServer, ...]:
        """Returns every copy's server. Weights are rates, scaled by service so that the largest is HAProxy's."""
        routes = self.routes()
        largest: dict[str, float] = {}
        for _, route in routes:
            if not route.drained:
                largest[route.service] = max(largest.get(route.service, 0.0), route.weight)
        return tuple(_server(source, route, largest.get(route.service, 0.0)) for source, route in routes)

    def routes(self) -> list[tuple[str, RouteSpec]]:
        """Returns the routes in force with their sources: what a node declares, else what the control plane reports."""
        own = [
            (source, route)
            for source, declared in self.sources.items()
            if not is_followed(source)
            for route in declared.routes
        ]
        speaking = {source for source, _ in own}
        taken = {route.address for _, route in own}
        followed = [
            (source, route)
            for source, declared in self.sources.items()
            if is_followed(source) and source.removeprefix(FOLLOWED) not in speaking
            for route in declared.routes
            if route.address not in taken
        ]
        return sorted(own + followed, key=lambda pair: pair[0])

    def by_slot(self) -> dict[int, dict[str, HaproxyServer]]:
        """Returns the servers of every slot that has any."""
        found: dict[int, dict[str, HaproxyServer]] = {}
        for server in self.servers():
            found.setdefault(self.slots[server.service], {})[server.name] = server
        return found


def is_followed(source: str) -> bool:
    """Returns whether the source's routes come from the control plane."""
    return source.startswith(FOLLOWED)


def _server(source: str, route: RouteSpec, largest: float) -> HaproxyServer:
    host, port = split_address(route.address)
    weight = 0 if route.drained else max(1, round(LARGEST_WEIGHT * route.weight / largest))
    name = server_name(source, route.copy)
    return HaproxyServer(name, source, route.copy, route.service, host, port, weight, route.drained)


def server_name(source: str, copy: str) -> str:
    """Returns the server's name in HAProxy: unique across sources, and of allowed characters."""
    safe = "".join(sign if sign.isalnum() or sign in ".-" else f"_{ord(sign):02x}" for sign in copy)
    return f"{source}:{safe}"


def split_address(address: str) -> tuple[str, int]:
    """Splits `10.0.0.1:8000` or `[::1]:8000` into host and port; raises Malformed for anything else."""
    host, _, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        known = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        raise Malformed(f"address {address} does not contain an IP address") from None
    if (known.version == 6) != bracketed or not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise Malformed(f"address {address} is not HOST:PORT with a port of 1..65535")
    return str(known), int(port)


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
    return replace(desired, sources={**desired.sources, source: declared})


def follow(desired: Desired, sources: Mapping[str, DeclaredRoutes], limits: Mapping[str, ServiceLimit]) -> Desired:
    """Returns the desired state with the control plane's routes and limits; nodes' own routes stay."""
    own = {source: declared for source, declared in desired.sources.items() if not is_followed(source)}
    return replace(desired, sources=own | dict(sources), limits=dict(limits))


def with_slots(desired: Desired, idle: Collection[int]) -> Desired:
    """Gives every service a slot. It keeps the slot after its last copy is gone, so that callers get Retry-After; an
    `idle` slot (no copy, no request anywhere) is reused only when no other is free."""
    wanted = {route.service for declared in desired.sources.values() for route in declared.routes}
    wanted |= desired.limits.keys()
    slots, count = dict(desired.slots), desired.slot_count
    free = sorted(set(range(1, count + 1)) - set(slots.values()), reverse=True)
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


class DesiredFile(msgspec.Struct, rename="camel"):
    """The desired state as saved on disk."""

    sources: dict[str, DeclaredRoutes]
    slots: dict[str, int]
    slot_count: int
    limits: dict[str, ServiceLimit] = {}


def read(path: Path) -> Desired:
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=DesiredFile)
    except FileNotFoundError:
        return Desired()
    return Desired(stored.sources, stored.slots, stored.slot_count, stored.limits)


def keep(path: Path, desired: Desired) -> None:
    stored = DesiredFile(dict(desired.sources), dict(desired.slots), desired.slot_count, dict(desired.limits))
    durable.write(path, msgspec.json.encode(stored))


def servers_by_name(servers: Iterable[HaproxyServer]) -> dict[str, HaproxyServer]:
    return {server.name: server for server in servers}
