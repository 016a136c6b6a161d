"""Reads what pages show at one moment; a tenant sees its own, by the same rules as over the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby

from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Principal, Reach, require
from app.api.answers import overview
from app.api.answers.overview import OverviewServiceWire
from app.api.plans import plan_wire
from app.api.plans.plan_wire import PlanContentWire, PlanHeadWire
from app.console.late_runs import LateRun, find_late_run
from app.console.money import Money, summarize_money
from app.console.moves import MoveMap, draw_moves, name_changed_nodes
from app.store.database import clock, lease
from app.store.database.lease import Lease
from app.store.fleet import fleet_map, late_minutes
from app.store.fleet.fleet_map import MapNode, ReportedCopy
from app.store.fleet.loads import WindowSums
from app.store.money import packed_minutes, report_queries
from app.store.plans import approval_hold, outlook, plan_reads
from app.store.plans.approval_hold import ApprovalHold
from app.store.plans.plan_reads import CycleWire
from app.store.world import events
from app.store.world.events import EventFilter, RecordedEvent
from solvers.planning.wire import PlanBodyWire

EVENTS_WITHIN = timedelta(hours=1)
MOST_TROUBLES = 500  # warnings and alarms
MOST_INFO = 100  # other events
RECENT_PLANS = 20  # in which the last bound is searched
MOST_LATE = 20  # late services of which it is found out since when
MINUTES = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class ConsoleData:
    """The data of pages, all of one moment; each page reads the part that it needs."""

    at: datetime
    tenant: str = ""  # who looks; empty: sees everything
    services: list[OverviewServiceWire] = field(default_factory=list)
    late: Mapping[str, LateRun] = field(default_factory=dict)  # by service: since when it has been late
    nodes: list[MapNode] = field(default_factory=list)
    copies: Sequence[ReportedCopy] = ()
    memory_gib: dict[str, float] = field(default_factory=dict)  # by GPU type
    plan: PlanHeadWire | None = None  # the one in force, else the newest
    is_in_force: bool = True  # that plan
    body: PlanContentWire = field(default_factory=lambda: plan_wire.NOTHING)
    proved: PlanHeadWire | None = None  # the newest plan with a bound
    events: list[RecordedEvent] = field(default_factory=list)
    leader: Lease | None = None
    cycle: CycleWire | None = None  # the last one
    held_per_hour: float | None = None  # the price of the GPUs that hold copies of services
    waiting: int = 0  # the plan that waits for approval
    hold: ApprovalHold | None = None  # since a rollback


def read_planned(connection: Connection, tenant: str) -> ConsoleData:
    """Reads the plan in force, or the tenant's part of it."""
    at = clock.moment(connection)
    in_force = plan_reads.read_generation_in_force(connection)
    generation = in_force or plan_reads.newest(connection)
    row = plan_reads.read_head(connection, generation) if generation else None
    body = (plan_wire.body(connection, generation) if generation else None) or plan_wire.NOTHING
    shown = plan_wire.select_tenant(body, tenant) if tenant else body
    head = plan_wire.head(row, tenant) if row else None
    return ConsoleData(at=at, tenant=tenant, plan=head, is_in_force=bool(in_force), body=shown)


def read_services(connection: Connection, tenant: str, counted: WindowSums) -> ConsoleData:
    """Reads the services, with what the plan has for them, but for what was counted of each."""
    data = read_planned(connection, tenant)
    generation = data.plan["generation"] if data.plan else 0
    rows = overview.services(connection, generation, data.body, tenant, counted)
    return replace(data, services=rows)


def read_fleet(connection: Connection, tenant: str, counted: WindowSums) -> ConsoleData:
    """Reads the fleet with its services and what happened lately, in one transaction."""
    data = read_services(connection, tenant, counted)
    copies = fleet_map.read_copies(connection, tenant)
    data = replace(
        data,
        nodes=_read_tenant_nodes(connection, data.body, copies) if tenant else fleet_map.nodes(connection),
        copies=copies,
        memory_gib=fleet_map.memory_gib(connection),
        events=_events(connection, data.at, tenant),
        late=read_late_runs(connection, [service for service in data.services if is_late(service)]),
    )
    if tenant:
        return data
    return replace(
        data,
        proved=_read_proved(connection),
        leader=lease.current(connection),
        cycle=next(iter(plan_reads.cycles(connection, 1)), None),
        held_per_hour=outlook.get(connection, outlook.MONEY).get("heldPerHour"),
        waiting=plan_reads.newest_waiting(connection),
        hold=approval_hold.find(connection),
    )


def read_moves(
    connection: Connection, before: PlanContentWire, after: PlanContentWire | PlanBodyWire, tenant: str = ""
) -> MoveMap:
    """Returns the nodes on which two plans differ; a tenant sees its own part of them."""
    names = name_changed_nodes(before, after)
    known = {node.name: node for node in fleet_map.read_named_nodes(connection, names)}
    shown = [known.get(name) or MapNode(name, "", 0, None, None) for name in names]
    return draw_moves(before, after, [replace(node, gpus=0) for node in shown] if tenant else shown)


def read_node(connection: Connection, tenant: str, name: str) -> tuple[ConsoleData, dict[int, dict[str, object]]]:
    """Reads a node with what is planned on it, and by GPU its last minute; a tenant reads neither minutes nor others'.

    Without such a node, or for a tenant that does not run on it, `nodes` is empty.
    """
    data = read_planned(connection, tenant)
    copies = fleet_map.read_copies(connection, tenant, name)
    nodes = (
        _read_tenant_nodes(connection, data.body, copies) if tenant else fleet_map.read_named_nodes(connection, [name])
    )
    found = [node for node in nodes if node.name == name]
    data = replace(data, nodes=found, copies=copies, memory_gib=fleet_map.memory_gib(connection))
    return data, _minutes(connection, data.at, name) if found and not tenant else {}


def read_late_runs(connection: Connection, services: Sequence[OverviewServiceWire]) -> dict[str, LateRun]:
    """Returns since when services have been late, those that were lately; of many the ones that burn most."""
    worst = sorted(services, key=lambda service: -(service["burnRate"] or 0.0))[:MOST_LATE]
    promised = {service["service"]: service["percentile"] for service in worst}
    spans = sorted(late_minutes.read_answered_spans(connection, list(promised)), key=lambda span: span.service)
    found = {name: find_late_run(own, promised[name]) for name, own in groupby(spans, lambda span: span.service)}
    return {name: run for name, run in found.items() if run is not None}


def is_late(service: OverviewServiceWire) -> bool:
    return service["attained"] is not None and service["attained"] * 100 < service["percentile"]


def read_money(connection: Connection, who: Principal, at: datetime, currency: str) -> Money:
    """Reads the money of the day so far; a tenant sees its own."""
    tenant = who.tenant if require(who, Noun.MONEY, AccessVerb.READ) is Reach.OWN else ""
    midnight = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)

    def rows(report: str, *by: str) -> list[dict[str, object]]:
        return report_queries.read(connection, report_queries.ReportQuery(report, by, "", midnight, at, tenant))

    realised = [] if tenant else rows("savings_realised")
    return summarize_money(currency, rows("cost", "tenant", "service"), rows("savings"), realised)


def read_all_nodes(connection: Connection, tenant: str) -> Sequence[MapNode]:
    """Returns the nodes; those that it runs on for a tenant."""
    if not tenant:
        return fleet_map.nodes(connection)
    own = read_planned(connection, tenant).body
    return _read_tenant_nodes(connection, own, fleet_map.read_copies(connection, tenant))


def _read_tenant_nodes(
    connection: Connection, own: PlanContentWire, copies: Sequence[ReportedCopy]
) -> list[MapNode]:  # fmt: skip
    """Returns the nodes that the tenant runs on, without their number of GPUs and the health of others."""
    names = {line["node"] for line in (*own["instances"], *own["jobs"])} | {copy.node for copy in copies}
    nodes = fleet_map.read_named_nodes(connection, names)
    return [MapNode(node.name, node.gpu_type, 0, node.received_at, None) for node in nodes]


def _read_proved(connection: Connection) -> PlanHeadWire | None:
    recent = plan_reads.page(connection, 2**62, RECENT_PLANS)
    return next((plan_wire.head(row) for row in recent if row["gap"] is not None), None)


def _events(connection: Connection, at: datetime, tenant: str) -> list[RecordedEvent]:
    """Returns events of the last hour, the newest first; many informational ones cannot displace alarms."""
    since = at - EVENTS_WITHIN
    troubles = EventFilter(tenant=tenant, severities=["alarm", "warning"], since=since)
    information = EventFilter(tenant=tenant, severities=["info"], since=since)
    found = [*events.recent(connection, troubles, MOST_TROUBLES), *events.recent(connection, information, MOST_INFO)]
    return sorted(found, key=lambda event: (event.last_at, event.id), reverse=True)


def _minutes(connection: Connection, at: datetime, node: str) -> dict[int, dict[str, object]]:
    rows = packed_minutes.gpu_minutes(connection, node, at - MINUTES, at, 5000)
    return {row["gpu"]: row for row in rows}  # oldest first, so that the last one stays
