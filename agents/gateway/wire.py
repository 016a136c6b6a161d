"""The sidecar's messages: a source's routes, which of them are in force, and what was counted."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from agents.contract.fields import Count, Counter, Identifier, Name, ServiceName
from agents.contract.gateways import LengthTotals, TokenTotals, WindowTotals
from agents.contract.paths import PathsKey, PathTable


class RouteSpec(Struct, rename="camel", frozen=True, forbid_unknown_fields=False):
    """One copy's wanted route. The address is an IP literal: no name is looked up."""

    copy: Identifier
    service: ServiceName
    address: Annotated[str, Meta(max_length=60, pattern=r"^[0-9A-Za-z.:\[\]]+$(?!\n)")]
    weight: Annotated[float, Meta(gt=0, le=1e12)] = 1.0
    drained: bool = False
    in_time: Count = 0  # most open requests that it answers within the SLO; 0: unknown
    paths: PathsKey = ""  # that callers may use


class DeclaredRoutes(Struct, rename="camel", frozen=True):
    """All routes of one source. A lower sequence than before is refused; an equal one must be identical."""

    sequence: Counter
    routes: Annotated[tuple[RouteSpec, ...], Meta(max_length=4096)] = ()
    paths: PathTable = {}  # of its routes


class ServiceLimit(Struct, rename="camel", frozen=True, omit_defaults=True):
    """The limit of a service's accepted requests."""

    queue_limit: int = 0  # open at once, answered or waiting; 0: no limit
    shed_share: float = 0.0  # answered 503 at once
    retry_after_seconds: int = 2
    slo_ms: float = 0.0  # by which overload is detected; 0: never
    percentile: float = 0.0  # of requests, that must be within it; 0: unknown
    tpot_ms: float = 0.0  # of tokens after the first; with it, `slo_ms` is of the first token
    by_prefix: bool = False  # requests that begin alike go to one copy
    by_copy: bool = False  # copies have limits of their own, and no request waits for one of them


class RoutedCopy(Struct, rename="camel", frozen=True):
    """One copy's state in HAProxy."""

    copy: str
    ready: bool
    open_requests: int


class RoutesInForce(Struct, rename="camel", frozen=True):
    """The acknowledgement of the source's routes that are in force."""

    sequence: int
    routes: tuple[RoutedCopy, ...]


class GatewayRefusal(Struct, rename="camel", frozen=True, omit_defaults=True):
    """The reason why there is no acknowledgement. `sequence` is the source's highest, if the reason is stale."""

    reason: str  # stale, malformed, forbidden, haproxy_away, not_applied, ...
    message: str
    sequence: int = 0


class CountedRequests(Struct, rename="camel", frozen=True):
    """Totals of a copy, or of a service if `copy` is empty, which also has requests that no copy answered."""

    service: str
    requests: int
    errors: int
    latency_counts: tuple[int, ...]
    source: str = ""
    copy: str = ""
    shed: int = 0  # of the errors: turned away by the service's limit
    open: int = 0  # of a service, now: received and not answered yet
    timed: int = 0  # answers compared with the SLO
    late: int = 0  # of those, answers later than the SLO
    windows: tuple[WindowTotals, ...] = ()  # of a service: how its arrivals scatter
    tokens: TokenTotals | None = None  # of a service that promises times of tokens, and of its copies
    lengths: LengthTotals | None = None  # of these, too


class SidecarCounts(Struct, rename="camel", frozen=True):
    """All totals since the sidecar began."""

    began: str  # changes when counting restarts
    lines: int
    lost_lines: int  # written by HAProxy, but never read here
    refused_lines: int  # read, but not parsed
    counted: tuple[CountedRequests, ...]


class SourceName(Struct):
    """A source, checked like a node's name."""

    source: Name
