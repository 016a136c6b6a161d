"""A node: its GPUs, what runs there, what happened to it, and whether plans are kept off it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, may
from app.api.requests import Ctx
from app.console.charts.lanes import LaneFigure
from app.console.charts.ranges import choose_range
from app.console.charts.reading import read_lanes, read_node_charts
from app.console.charts.section import ChartSection, draw_section
from app.console.data import read_node
from app.console.forms import form_token
from app.console.links import node_link
from app.console.node_page import NodePage, describe_node
from app.console.page_answer import show, shown_tenant, zone_of_reader
from app.console.page_request import read_charts_query
from app.console.refusals import unknown_name
from app.console.visitor import Viewer
from app.problem import HttpProblem
from app.store.fleet import cordons, fleet_minutes
from app.store.fleet.cordons import Cordon
from app.store.world import events
from app.store.world.events import EventFilter, RecordedEvent

router = APIRouter(include_in_schema=False)

MOST_EVENTS = 30
LONGEST_GPU = 4  # digits
DONE = {
    "cordon": "You cordoned {it}: nothing new is placed there.",
    "drain": "You asked to drain {it}: what runs there moves away, new copies first.",
    "uncordon": "You uncordoned {it}: plans may use it again.",
}


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the page of a node shows, all of one moment."""

    at: datetime
    node: NodePage
    events: list[RecordedEvent]
    cordons: list[Cordon]
    lanes: LaneFigure
    charts: ChartSection
    range: str  # of both, by its name in the address


@router.get("/nodes/{name}")
def node_page(request: Request, ctx: Ctx, who: Viewer, name: str) -> Response:
    return show_node(request, ctx, who, name)


def show_node(
    request: Request, ctx: Ctx, who: Viewer, name: str, refused: HttpProblem | None = None
) -> Response:  # fmt: skip
    """Shows the node, with what may be done with it; `refused` says why the last attempt was not made."""
    tenant, zone = shown_tenant(who), zone_of_reader(request)
    query = read_charts_query(request.query_params)

    def read(connection: Connection) -> NodeFacts:
        found, minutes = read_node(connection, tenant, name)
        if not found.nodes:
            raise unknown_name("node")
        described = describe_node(found, minutes)
        wanted = EventFilter(kind="Node", name=name)
        happened = [] if tenant else events.recent(connection, wanted, MOST_EVENTS)
        kept_off = [] if tenant else cordons.list_cordons(connection, name)
        span = choose_range(query.range, fleet_minutes.read_oldest(connection), found.at)
        indexes = [gpu.index for gpu in described.gpus]
        lanes = read_lanes(connection, span, found.at, name, tenant, indexes, kept_off, zone)
        charts = [] if tenant else read_node_charts(connection, span, found.at, name)
        section = draw_section(charts, span, zone, address, query.table)
        return NodeFacts(found.at, described, happened, kept_off, lanes, section, span.name)

    def address(range_name: str, table: str) -> str:
        return f"{node_link(name)}{query.part(range=range_name, table=table)}"

    facts = ctx.database.read(read)
    writes = may(who, Noun.CORDON, AccessVerb.WRITE)
    return show(
        request, who, "node.html", facts.at, status=refused.status if refused else 200, pinned={"range": facts.range},
        node=facts.node, events=facts.events, cordons=facts.cordons, lanes=facts.lanes, charts=facts.charts,
        refused=refused,
        form=form_token(who) if writes else "",
        said=_said(request.query_params) if writes else "",
        may_ask=may(who, Noun.WHAT_IF, AccessVerb.WRITE),
    )  # fmt: skip


def _said(query: Mapping[str, str]) -> str:
    """Returns what the operator has just done; empty for an unknown word."""
    gpu = query.get("gpu", "")
    it = f"GPU {gpu}" if gpu.isascii() and gpu.isdigit() and len(gpu) <= LONGEST_GPU else "it"
    return DONE.get(query.get("done", ""), "").format(it=it)
