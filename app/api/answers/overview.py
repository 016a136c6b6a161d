"""The system at a glance, for `gpuwright top`: services, GPUs, the plan's cost against its bound, last decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from importlib import import_module
from typing import NotRequired, TypedDict

from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Reach, require
from app.api.answers.questions import read_recorded
from app.api.answers.recent import Recent
from app.api.answers.solvers import call_solvers
from app.api.plans import plan_wire
from app.api.plans.plan_wire import PlanContentWire, PlanHeadWire
from app.api.replies import Reply, TypedRouter
from app.api.requests import Ctx, Who, answer
from app.control.answer.explain.plan_lines import drop_left_out
from app.control.answer.explain.shares import ServiceCost, divide_costs
from app.control.formulate.pose import pose
from app.control.rent import money
from app.control.tell import slo
from app.nodes.reporting_condition import PATIENCE
from app.problem import HttpProblem
from app.store.database import clock, lease
from app.store.fleet import loads, observed, telemetry
from app.store.fleet.loads import WindowSums
from app.store.fleet.routed import RoutedCopies, count_routed, list_silent_nodes
from app.store.plans import outlook, plan_reads, plans
from app.store.plans.outlook import MoneyOutlookWire
from app.store.plans.plan_reads import CycleWire
from app.store.world import events
from app.store.world.events import EventFilter
from app.store.world.objects import rfc3339
from app.store.world.slos import slos
from app.wire import MomentText, Severity
from solvers.planning.plan_fields import held_gpus
from solvers.planning.wire import PlanInstanceWire, PlanJobWire

router = TypedRouter(prefix="/api/v1/overview", tags=["overview"])

RATE_WINDOW = timedelta(seconds=60)
SLO_WINDOW = "30m"
LAST = 10
TROUBLES_WITHIN = timedelta(hours=1)
MOST_TROUBLES = 100


class OverviewServiceWire(TypedDict):
    """A service: what was measured, and what the plan expects."""

    service: str
    ratePerSecond: float | None
    attained: float | None
    burnRate: float | None
    budgetLeft: float | None
    plannedPerSecond: float
    unservedPerSecond: float
    sloMs: float
    percentile: float
    tpotMs: float | None
    latencyMs: float | None
    pricePerHour: float | None
    idlePerHour: float | None  # of that for what no service uses of its GPUs; none for a tenant: neighbours show in it
    instances: int
    routed: int  # copies that answer, by nodes that report
    silentCopies: int  # that answered when their nodes last reported; these have been silent since


class SilentNodeWire(TypedDict):
    """A node that does not report, and its last report; none where there was none. A rented one may be starting."""

    node: str
    since: MomentText | None
    starting: bool


class OverviewGpuWire(TypedDict):
    """A GPU that the plan uses, with its last minute."""

    node: str
    gpu: int
    smPercent: float
    memoryGib: float
    services: list[str]
    jobs: list[str]
    powerW: float | None
    utilizationPercent: float | None


class LeavingGpuWire(TypedDict):
    """A GPU that the plan does not use and that still has copies of services."""

    node: str
    gpu: int
    smPercent: float
    memoryGib: float


class OverviewEventWire(TypedDict):
    """An alarm or a warning of the last hour."""

    at: MomentText
    severity: Severity
    reason: str
    kind: str
    tenant: str
    name: str
    message: str


class RentedPoolWire(TypedDict):
    """A pool: its rented nodes, what they cost an hour, and the money of this month, UTC; also one that was deleted.

    Wasted is the time in which a node started, or was rented this month and had nothing planned on it.
    """

    pool: str
    nodes: int
    starting: int
    costPerHour: float | None  # of the nodes of now; none once the pool is deleted
    costThisMonth: float
    wastedMinutes: float


class LeaderWire(TypedDict):
    """The planner that leads."""

    holder: str
    epoch: int
    held: bool


class OverviewWire(TypedDict):
    """The system at a glance; a tenant gets its services only, and `leftOut` names what this server cannot tell."""

    services: list[OverviewServiceWire]
    leftOut: list[str]
    gpus: NotRequired[list[OverviewGpuWire]]
    leaving: NotRequired[list[LeavingGpuWire]]
    silent: NotRequired[list[SilentNodeWire]]  # the longest silent first
    pools: NotRequired[list[RentedPoolWire]]
    plan: NotRequired[PlanHeadWire | None]
    decisions: NotRequired[list[PlanHeadWire]]
    cycles: NotRequired[list[CycleWire]]
    events: NotRequired[list[OverviewEventWire]]
    money: NotRequired[MoneyOutlookWire]
    leader: NotRequired[LeaderWire | None]


@router.get("", summary="Services with rate and attainment, GPUs, cost against its bound, decisions, the leader")
def overview(ctx: Ctx, who: Who) -> Reply[OverviewWire]:
    """A tenant sees its own services. `leftOut` names what a server without the solvers cannot tell."""
    tenant = who.tenant if require(who, Noun.OVERVIEW, AccessVerb.READ) is Reach.OWN else ""
    counted = ctx.windows.read(ctx.database, tenant)
    return answer(ctx.database.read(lambda connection: _whole(connection, tenant, counted)))


def _whole(connection: Connection, tenant: str, counted: WindowSums) -> OverviewWire:
    number = plan_reads.read_generation_in_force(connection) or plan_reads.newest(connection)
    body = (plan_wire.body(connection, number) if number else None) or plan_wire.NOTHING
    rows = services(connection, number, body, tenant, counted)
    found: OverviewWire = {"services": rows, "leftOut": _left_out()}
    if tenant:
        return found
    row = plan_reads.read_head(connection, number) if number else None
    leader = lease.current(connection)
    gpus = _gpus(body, telemetry.newest_of_gpus(connection))
    return {
        **found,
        "gpus": gpus,
        "leaving": _leaving(connection, gpus) if plan_reads.read_generation_in_force(connection) else [],
        "silent": [
            {"node": node, "since": rfc3339(at) if at else None, "starting": is_starting}
            for node, at, is_starting in list_silent_nodes(connection, PATIENCE)
        ],
        "pools": [
            {
                "pool": pool.pool,
                "nodes": pool.nodes,
                "starting": pool.starting,
                "costPerHour": pool.per_hour,
                "costThisMonth": pool.cost,
                "wastedMinutes": round(pool.wasted_minutes, 1),
            }
            for pool in money.read_pools(connection, money.find_month(clock.moment(connection)))
        ],
        "plan": plan_wire.head(row) if row else None,
        "decisions": [plan_wire.head(line) for line in plan_reads.page(connection, 2**62, LAST)],
        "cycles": plan_reads.cycles(connection, 1),
        "events": _troubles(connection),
        "money": outlook.get(connection, outlook.MONEY),
        "leader": {"holder": leader.holder, "epoch": leader.epoch, "held": leader.held} if leader else None,
    }


def _troubles(connection: Connection) -> list[OverviewEventWire]:
    """Returns the alarms of the last hour, then its warnings, each the newest first; news cannot displace them."""
    since = clock.moment(connection) - TROUBLES_WITHIN
    found = events.recent(connection, EventFilter(severities=["alarm", "warning"], since=since), MOST_TROUBLES)
    found.sort(key=lambda event: (event.severity == "alarm", event.last_at), reverse=True)
    return [
        {
            "at": rfc3339(event.last_at), "reason": event.reason, "severity": event.severity, "kind": event.kind,
            "tenant": event.tenant, "name": event.name, "message": event.message,
        }
        for event in found[:LAST]
    ]  # fmt: skip


def services(
    connection: Connection, number: int, body: PlanContentWire, tenant: str, counted: WindowSums
) -> list[OverviewServiceWire]:
    """Returns the services, all or a tenant's, with what was measured and what the plan expects."""
    rates = {line.service: line for line in loads.answers_within(connection, RATE_WINDOW, tenant)}
    promised = slos(connection, tenant)
    assessed = slo.assess_all(counted, {name: promise["percentile"] for name, promise in promised})
    costs = costs_of(connection, number) if number else {}
    planned: dict[str, list[PlanInstanceWire]] = {}
    for instance in body["instances"]:
        planned.setdefault(instance["service"], []).append(instance)
    routed = count_routed(connection, tenant, PATIENCE)
    missed = {line["service"]: line["ratePerSecond"] for line in body["unserved"]}
    return [
        {
            "service": name,
            "ratePerSecond": rates[name].requests / rates[name].seconds if name in rates else None,
            "plannedPerSecond": sum(line["ratePerSecond"] for line in planned.get(name, ())),
            "unservedPerSecond": missed.get(name, 0.0),
            "attained": assessed[name].attainment.get(SLO_WINDOW),
            "burnRate": assessed[name].burn_rates.get(SLO_WINDOW),
            "budgetLeft": assessed[name].budget_left,
            "sloMs": promise["latencyMs"] if "latencyMs" in promise else promise["ttftMs"],
            "tpotMs": promise.get("tpotMs"),
            "percentile": promise["percentile"],
            "latencyMs": max((line["predicted"]["latencyMs"] for line in planned.get(name, ())), default=None),
            "instances": len(planned.get(name, ())),
            "routed": routed.get(name, RoutedCopies()).reported,
            "silentCopies": routed.get(name, RoutedCopies()).silent,
            "pricePerHour": costs[name].per_hour if name in costs else None,
            "idlePerHour": costs[name].idle_per_hour if name in costs and not tenant else None,
        }
        for name, promise in promised
    ]


def costs_of(connection: Connection, number: int) -> Mapping[str, ServiceCost]:
    """Returns what each service costs at the plan's own prices; nothing where its snapshot is no longer readable."""
    row = plans.read_row(connection, number)
    if row is None:
        return {}
    key = (*row.snapshot, bytes(row.body).hex())
    try:
        return _costs.get(key, lambda: _compute_costs(connection, number))
    except HttpProblem:
        return {}


def _compute_costs(connection: Connection, number: int) -> Mapping[str, ServiceCost]:
    snapshot, plan = call_solvers(lambda: read_recorded(connection, number))
    problem = pose(snapshot).problem
    return divide_costs(problem, drop_left_out(problem, plan))


_costs: Recent[tuple[str, ...], Mapping[str, ServiceCost]] = Recent()  # by the hashes of a plan and its snapshot


def _left_out() -> list[str]:
    """Names the parts of the answer that need the solvers, where they are not installed."""
    try:
        call_solvers(lambda: import_module("app.control.record.encoding"))
    except HttpProblem as problem:
        return [f"pricePerHour of services: {problem.detail}"]
    return []


def _gpus(body: PlanContentWire, measured: Mapping[tuple[str, int], tuple[float, float]]) -> list[OverviewGpuWire]:
    """Returns the GPUs that the plan uses, with their power and utilisation of the last minute."""
    on: dict[tuple[str, int], OverviewGpuWire] = {}

    def add(line: PlanInstanceWire | PlanJobWire) -> Iterator[OverviewGpuWire]:
        for index in held_gpus(line):
            place = line["node"], index
            if place not in on:
                watts, utilization = measured.get(place, (None, None))
                on[place] = {
                    "node": line["node"], "gpu": index, "smPercent": 0, "memoryGib": 0.0, "services": [], "jobs": [],
                    "powerW": watts, "utilizationPercent": utilization,
                }  # fmt: skip
            on[place]["smPercent"] += line["smPercent"]
            on[place]["memoryGib"] += line["memoryGib"]
            yield on[place]

    for instance in body["instances"]:
        for gpu in add(instance):
            gpu["services"].append(instance["service"])
    for job in body["jobs"]:
        for gpu in add(job):
            gpu["jobs"].append(job["job"])
    return [on[place] for place in sorted(on)]


def _leaving(connection: Connection, planned: Iterable[OverviewGpuWire]) -> list[LeavingGpuWire]:
    """Returns the GPUs that the plan does not use and on which a node that reports still has copies of services."""
    known = {(gpu["node"], gpu["gpu"]) for gpu in planned}
    held = [gpu for gpu in observed.held_gpus(connection) if (gpu.node, gpu.gpu) not in known]
    if not held:
        return []
    since = clock.moment(connection) - RATE_WINDOW
    reporting = {node for node, _, at in observed.generations(connection) if at >= since}
    return [
        {"node": gpu.node, "gpu": gpu.gpu, "smPercent": gpu.sm_percent, "memoryGib": gpu.memory_gib}
        for gpu in sorted(held, key=lambda gpu: (gpu.node, gpu.gpu))
        if gpu.node in reporting
    ]
