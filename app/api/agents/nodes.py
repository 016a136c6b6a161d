"""Takes reports of agents, gives them assignments, and shows what nodes reported last."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
from fastapi import Query, Request
from sqlalchemy import Connection
from starlette.types import Scope

from agents.contract import reports
from agents.contract.assignments import Assignment
from agents.contract.fields import GATEWAY_BEHIND, LONGEST_POLL_SECONDS
from agents.contract.reports import COPY, Answer
from app.access import AccessVerb, Noun, Principal, Reach, require
from app.api.replies import Reply, TypedRouter, takes
from app.api.requests import JSON, Ctx, Who, answer, context
from app.context import Context
from app.control.domain.events import Reason, event_of
from app.http.buckets import Buckets
from app.manifests.model import Free
from app.nodes import decoding, metrics, refusals, refused_copies
from app.nodes.detail import NodeDetail
from app.nodes.running import RunningWire, owners_of, running, running_of_tenant
from app.nodes.usage_bounds import BEYOND_BOUNDS, NOT_ASSIGNED
from app.problem import HttpProblem
from app.store.database.database import Unavailable
from app.store.fleet import assignments, node_state
from app.store.money import packed_minutes
from app.store.world import audit, events
from app.wire import MomentText, spell_camel
from app.world.write import Actor

WAIT_DESCRIPTION = "The longest time to wait for news; without any the answer may come up to a third sooner"
router = TypedRouter(prefix="/api/v1/nodes", tags=["nodes"])

AUDITED_REFUSALS = Buckets(0.1, 20.0)  # by caller: the audit is kept for a year, and 20 entries suffice
AUDITED_CLAIMS = Buckets(0.001, 5.0)  # by node
NOTED_CLAIMS = Buckets(0.001, 5.0)  # by node
NOTED_GATEWAYS = Buckets(1 / 60, 1.0)  # by gateway
LONGEST_SPAN = timedelta(days=31)
MOST_ROWS = 5000
OUTERMOST_YEARS = (MINYEAR, MAXYEAR)  # an hour or a time zone away from them, no moment can be represented
_ENCODER = msgspec.json.Encoder()


class NodeStateWire(RunningWire, TypedDict):
    """What runs on a node; a tenant gets its own copies, and in `others` how many more there are."""

    node: str
    receivedAt: MomentText
    health: str
    at: NotRequired[MomentText]
    bootId: NotRequired[str]
    message: NotRequired[str]
    epoch: NotRequired[int]
    generation: NotRequired[int]
    assignmentVersion: NotRequired[int]


class ReportedNodeWire(TypedDict):
    """The last report of a node."""

    node: str
    receivedAt: MomentText
    health: str
    at: MomentText
    bootId: str
    message: str
    epoch: int
    generation: int
    assignmentVersion: int
    inventory: Free | None


class GpuTelemetryWire(TypedDict):
    """A minute of a GPU."""

    minute: MomentText
    gpu: int
    health: str
    utilizationPercent: float | None
    memoryUsedGib: float | None
    powerMeanW: float | None
    powerPeakW: float | None
    energyCounterMj: float | None
    temperatureC: float | None
    smClockMhz: float | None
    throttleReasons: list[str]
    reason: str
    fenced: bool
    limits: Free | None


class InstanceTelemetryWire(TypedDict):
    """A minute of an instance."""

    minute: MomentText
    instance: str
    gpu: int
    tenant: str
    service: str
    job: str
    smPercent: float | None
    memoryGib: float | None
    batchMean: float | None
    queueMean: float | None
    busySeconds: float | None
    requests: int
    errors: int
    tokensIn: int
    tokensOut: int
    paced: int
    paceLate: int
    latencyCounts: list[int]
    limits: Free | None
    source: str
    steps: float | None


class NodeTelemetryWire(TypedDict):
    """The last report of a node, and its minutes."""

    node: str
    state: ReportedNodeWire
    gpus: list[GpuTelemetryWire]
    instances: list[InstanceTelemetryWire]


NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
REPORT = {"parameters": [NAME], **takes(reports.Report)}


@router.post("/{name}/report", summary="A node's report; stored when answered", openapi_extra=REPORT)
async def report(request: Request) -> Reply[Answer]:
    body = await take_report(context(request), request.scope, request.path_params["name"])
    return Reply(body, media_type=JSON)


async def take_report(ctx: Context, scope: Scope, node: str) -> bytes:
    """Stores the report in the body of the request, and returns the answer to it."""
    state = scope["state"]
    actor = Actor(state["principal"], state["request_id"])
    try:
        require(actor.principal, Noun.REPORT, AccessVerb.WRITE, node)
    except HttpProblem:
        await _audit_refusal(ctx, actor, node)
        raise
    raw: bytes = state["body"]
    sent = decoding.decode_report(raw)
    if sent.node != node:
        metrics.REFUSED.labels("another_node").inc()
        await _audit_refusal(ctx, actor, sent.node)
        raise HttpProblem("forbidden", f"the report is from node {sent.node}, but this path belongs to node {node}")
    sent, bad_addresses = refused_copies.drop_bad_addresses(sent, ctx.nodes.networks)
    stored = await ctx.nodes.intake.store(sent, raw)
    if bad_addresses:
        stored.dropped = (*stored.dropped, *bad_addresses)
        refused = [refused_copies.RefusedCopy(part.what.removeprefix(COPY), part.message) for part in bad_addresses]
        await refused_copies.record_refused(ctx.nodes.lane, {node: refused})
    if sent.held_back:
        await _audit_held_back(ctx, actor, sent)
    await _audit_claims(ctx, actor, node, stored.dropped)
    await _note_refused_usage(ctx, node, stored.dropped)
    for reason, count in Counter(part.reason for part in stored.dropped).items():
        metrics.REFUSED.labels(reason).inc(count)
    routed = await ctx.nodes.gateways.routed(stored.endpoints)
    campaign = await ctx.nodes.campaigns.due(node)
    newest = ctx.nodes.polls.newest(node)
    if routed.version < stored.endpoints:
        await _note_gateway_behind(ctx, routed.behind, stored.endpoints, sent)
    reply = Answer(
        True, newest, stored.now, stored.dropped, stored.incarnation, stored.endpoints, routed.version, routed.behind,
        campaign, routed.is_known,
    )  # fmt: skip
    return _ENCODER.encode(reply)


async def _audit_refusal(ctx: Context, actor: Actor, node: str) -> None:
    """Audits a report for another node: its agent is broken, or its token stolen."""
    if AUDITED_REFUSALS.take(actor.principal.party, time.monotonic()):
        metrics.REFUSED.labels("not_audited").inc()
        return
    entry = actor.entry("report", Noun.REPORT, name=node[:63], outcome="refused", detail="not this token's node")
    await ctx.nodes.lane.write(lambda connection: audit.record(connection, [entry]))


async def _audit_claims(ctx: Context, actor: Actor, node: str, dropped: Sequence[reports.Dropped]) -> None:
    """Audits usage of instances that were never assigned to the node: a fault, or an attempt to bill a tenant."""
    claims = [part for part in dropped if part.reason == NOT_ASSIGNED]
    if not claims or AUDITED_CLAIMS.take(node, time.monotonic()):
        return
    detail = f"usage billed to no tenant: {len(claims)}; {claims[0].message}"
    entry = actor.entry("report", Noun.REPORT, name=node, outcome="refused", detail=detail)
    with suppress(Unavailable):
        await ctx.nodes.lane.write(lambda connection: audit.record(connection, [entry]))


async def _note_refused_usage(ctx: Context, node: str, dropped: Sequence[reports.Dropped]) -> None:
    """Records an event about usage beyond the bounds, by the node's name; only some, however much there is."""
    beyond = [part for part in dropped if part.reason in BEYOND_BOUNDS]
    if not beyond or NOTED_CLAIMS.take(node, time.monotonic()):
        return
    message = f"usage of node {node} was refused: {len(beyond)} intervals; {beyond[0].reason}: {beyond[0].message}"
    event = event_of(Reason.USAGE_REFUSED, message, kind="Node", name=node)
    with suppress(Unavailable):
        await ctx.nodes.lane.write(lambda connection: events.record(connection, [event]))


async def _note_gateway_behind(ctx: Context, gateway: str, version: int, sent: reports.Report) -> None:
    """Records an event about a gateway for which copies of this node wait; one a minute, however many wait.

    The node's own sentence may be about another gateway, which it had to wait for before.
    """
    is_waiting = any(held.reason == GATEWAY_BEHIND for held in sent.held_back)
    if not (gateway and is_waiting) or NOTED_GATEWAYS.take(gateway, time.monotonic()):
        return
    message = f"gateway {gateway} has not taken version {version}; copies of node {sent.node} that leave keep serving"
    event = event_of(Reason.GATEWAY_BEHIND, message, kind="Gateway", name=gateway)
    with suppress(Unavailable):
        await ctx.nodes.lane.write(lambda connection: events.record(connection, [event]))


async def _audit_held_back(ctx: Context, actor: Actor, sent: reports.Report) -> None:
    """Audits what the node refused to run for safety; the report is stored in any case."""
    fresh = refusals.find_new(sent, ctx.nodes.refusals)
    if not fresh:
        return
    try:
        await ctx.nodes.lane.write(lambda c: refusals.write_refusals(c, actor, sent, fresh))
    except Unavailable:
        return  # the next report repeats it
    refusals.remember(ctx.nodes.refusals, sent, fresh)


@router.get(
    "/{name}/assignment",
    summary="The node's assignment, once its version differs from `after`",
    responses={204: {"description": "Nothing new"}},
)
async def assignment(
    name: str,
    ctx: Ctx,
    who: Who,
    after: Annotated[int, Query(ge=0, lt=2**62, description="The version the agent has; 0 for none")] = 0,
    wait_seconds: Annotated[
        float, Query(alias="waitSeconds", ge=0, le=LONGEST_POLL_SECONDS, description=WAIT_DESCRIPTION)
    ] = 30.0,
) -> Reply[Assignment]:
    body = await read_assignment(ctx, who, name, after, wait_seconds)
    return Reply(status_code=204) if body is None else Reply(body, media_type=JSON)


async def read_assignment(ctx: Context, who: Principal, node: str, after: int, seconds: float) -> bytes | None:
    """Returns the node's assignment once its version differs from `after`; None when the time is up."""
    require(who, Noun.ASSIGNMENT, AccessVerb.READ, node)
    body = await ctx.nodes.polls.wait(who, node, after, seconds)
    return None if body is None else body.encode()


@router.get("/{name}/telemetry", summary="The node's last state, and its minutes, oldest first")
def node_telemetry(
    name: str,
    ctx: Ctx,
    who: Who,
    start: Annotated[datetime | None, Query(description="From this minute on; by default an hour ago")] = None,
    stop: Annotated[datetime | None, Query(description="Before this minute; by default now")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS, description="Rows of GPUs, and rows of instances")] = 1000,
) -> Reply[NodeTelemetryWire]:
    require(who, Noun.TELEMETRY, AccessVerb.READ, name)
    until = _utc(stop) or datetime.now(UTC)
    if (start and start.year in OUTERMOST_YEARS) or until.year in OUTERMOST_YEARS:
        raise HttpProblem("bad-request", "start and stop must be in the years 2 to 9998")
    since = _utc(start) or until - timedelta(hours=1)
    if not timedelta(0) <= until - since <= LONGEST_SPAN:
        raise HttpProblem("bad-request", "start must be before stop, and by at most 31 days")

    def read(connection: Connection) -> Free:
        return {
            "node": name,
            "state": node_state.state(connection, name),
            "gpus": packed_minutes.gpu_minutes(connection, name, since, until, limit),
            "instances": packed_minutes.instance_minutes(connection, name, since, until, limit),
        }

    found = ctx.database.read(read)
    if found["state"] is None:
        raise HttpProblem("not-found", f"node {name} has not reported")
    return answer(camel(found))


@router.get("/{name}/state", summary="What runs on the node, what it holds back, and where it deviates from the plan")
def state_of_node(name: str, ctx: Ctx, who: Who) -> Reply[NodeStateWire]:
    """A tenant sees its own copies, and how much more there is; nothing of nodes that it does not run on."""
    granted = require(who, Noun.NODE_STATE, AccessVerb.READ)

    def read(connection: Connection) -> tuple[Free | None, Free | None, tuple[int, str] | None]:
        return (
            node_state.state(connection, name),
            node_state.detail(connection, name),
            assignments.read_assignment(connection, name),
        )

    state, stored, assigned = ctx.database.read(read)
    nothing = HttpProblem("not-found", f"node {name} has not reported")
    if state is None:
        raise nothing
    detail = msgspec.convert(stored or {}, NodeDetail)
    owners = owners_of(detail, msgspec.json.decode(assigned[1], type=Assignment) if assigned else None)
    state.pop("inventory")
    if granted is not Reach.OWN:
        return answer(camel(state) | running(detail, owners))
    own = running_of_tenant(detail, owners, who.tenant)
    if own is None:
        raise nothing
    return answer(camel({key: state[key] for key in ("node", "received_at", "health")}) | own)


def _utc(moment: datetime | None) -> datetime | None:
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=UTC)


def camel(value: Any) -> Any:
    """Returns column names as the wire spells them."""
    if isinstance(value, dict):
        return {spell_camel(key): camel(item) for key, item in value.items()}
    return [camel(item) for item in value] if isinstance(value, list) else value
