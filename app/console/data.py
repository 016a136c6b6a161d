"""Reads what the page shows at one moment; a tenant sees its own, by the same rules as over the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Principal, Reach, require
from app.api import overview, plan_wire
from app.console.money import Money, summarize_money
from app.console.page_request import PageRequest
from app.control.tell.token_shares import TokenShares, token_shares
from app.store.database import lease
from app.store.database.lease import Lease
from app.store.fleet import fleet_map, loads, observed, telemetry
from app.store.fleet.fleet_map import MapNode
from app.store.fleet.loads import WindowSums
from app.store.money import report_queries
from app.store.plans import outlook, plan_reads
from app.store.world import events, job_list
from app.store.world.events import EventFilter, RecordedEvent

EVENTS_WITHIN = timedelta(hours=1)
MOST_TROUBLES = 500  # warnings and alarms
MOST_INFO = 100  # other events
RECENT_PLANS = 20  # in which the last bound is searched
MOST_JOBS = 50
MINUTES = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class ConsoleData:
    """Everything that the page shows, of one moment."""

    at: datetime
    tenant: str = ""  # who looks; empty: sees everything
    services: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[MapNode] = field(default_factory=list)
    memory_gib: dict[str, float] = field(default_factory=dict)  # by GPU type
    plan: dict[str, Any] | None = None  # the one in force, else the newest
    body: dict[str, Any] = field(default_factory=dict)
    proved: dict[str, Any] | None = None  # the newest plan with a bound
    events: list[RecordedEvent] = field(default_factory=list)
    leader: Lease | None = None
    cycle: dict[str, Any] | None = None  # the last one
    held_per_hour: float | None = None  # the price of the GPUs that hold copies of services
    waiting: int = 0  # the plan that waits for approval
    jobs: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # tenant/name, and its status
    minutes: dict[int, dict[str, Any]] = field(default_factory=dict)  # of the chosen node, by GPU: the last one
    shares: TokenShares = field(default_factory=TokenShares)  # of the chosen service, if its SLO is of tokens


def shown_tenant(who: Principal) -> str:
    """Returns the tenant whose part of the page the caller sees; empty where it sees everything."""
    return who.tenant if require(who, Noun.OVERVIEW, AccessVerb.READ) is Reach.OWN else ""


def read_data(connection: Connection, who: Principal, request: PageRequest, counted: WindowSums) -> ConsoleData:
    """Reads everything in one transaction, but for what was counted of each service."""
    tenant = shown_tenant(who)
    at = observed.moment(connection)
    generation = plan_reads.in_force(connection) or plan_reads.newest(connection)
    row = plan_reads.read_head(connection, generation) if generation else None
    body = plan_wire.body(connection, generation) if generation else None
    services = overview.services(connection, generation, body or {}, tenant, counted)
    shown = plan_wire.of_tenant(body, tenant) if body and tenant else body or {}
    nodes = _of_tenant(connection, shown) if tenant else fleet_map.nodes(connection)
    return ConsoleData(
        at=at,
        tenant=tenant,
        services=services,
        nodes=nodes,
        memory_gib=fleet_map.memory_gib(connection),
        plan=plan_wire.head(row, tenant) if row else None,
        body=shown,
        proved=None if tenant else _proved(connection),
        events=_events(connection, at, tenant),
        leader=None if tenant else lease.current(connection),
        cycle=None if tenant else next(iter(plan_reads.cycles(connection, 1)), None),
        held_per_hour=None if tenant else outlook.get(connection, outlook.MONEY).get("heldPerHour"),
        waiting=0 if tenant else plan_reads.newest_waiting(connection),
        jobs=job_list.listed(connection, tenant, MOST_JOBS),
        minutes=_minutes(connection, at, request.node) if request.node and not tenant else {},
        shares=_shares(connection, services, request.service),
    )


def read_money(connection: Connection, who: Principal, at: datetime, currency: str) -> Money:
    """Reads the money of the day so far; a tenant sees its own."""
    tenant = who.tenant if require(who, Noun.MONEY, AccessVerb.READ) is Reach.OWN else ""
    midnight = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)

    def rows(report: str, *by: str) -> list[dict[str, Any]]:
        return report_queries.read(connection, report_queries.ReportQuery(report, by, "", midnight, at, tenant))

    realised = [] if tenant else rows("savings_realised")
    return summarize_money(currency, rows("cost", "tenant", "service"), rows("savings"), realised)


def _of_tenant(connection: Connection, own: dict[str, Any]) -> list[MapNode]:
    """Returns the nodes that the tenant runs on, without their number of GPUs and the health of others."""
    names = {line["node"] for line in (*own.get("instances", ()), *own.get("jobs", ()))}
    nodes = fleet_map.named_nodes(connection, names)
    return [MapNode(node.name, node.gpu_type, 0, node.received_at, None) for node in nodes]


def _proved(connection: Connection) -> dict[str, Any] | None:
    recent = plan_reads.page(connection, 2**62, RECENT_PLANS)
    return next((plan_wire.head(row) for row in recent if row["gap"] is not None), None)


def _events(connection: Connection, at: datetime, tenant: str) -> list[RecordedEvent]:
    """Returns events of the last hour, the newest first; many informational ones cannot displace alarms."""
    since = at - EVENTS_WITHIN
    troubles = EventFilter(tenant=tenant, severities=["alarm", "warning"], since=since)
    information = EventFilter(tenant=tenant, severities=["info"], since=since)
    found = [*events.recent(connection, troubles, MOST_TROUBLES), *events.recent(connection, information, MOST_INFO)]
    return sorted(found, key=lambda event: (event.last_at, event.id), reverse=True)


def _shares(connection: Connection, services: Sequence[Mapping[str, Any]], chosen: str) -> TokenShares:
    service = next((line for line in services if line["service"] == chosen), None)
    if service is None or not service["tpotMs"]:
        return TokenShares()
    tenant, _, name = chosen.partition("/")
    window = loads.WINDOWS[overview.SLO_WINDOW]
    return token_shares(loads.token_answers(connection, tenant, name, window), service["sloMs"])


def _minutes(connection: Connection, at: datetime, node: str) -> dict[int, dict[str, Any]]:
    rows = telemetry.gpu_minutes(connection, node, at - MINUTES, at, 5000)
    return {row["gpu"]: row for row in rows}  # oldest first, so that the last one stays
