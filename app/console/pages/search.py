"""Finds services, jobs, nodes and plans by a part of their name; a single find opens its page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.api.requests import Ctx
from app.console.data import read_all_nodes
from app.console.links import job_link, node_link, plan_link, service_link
from app.console.page_answer import redirect, show, shown_tenant
from app.console.page_request import read_id, read_text
from app.console.visitor import Viewer
from app.store.database import clock
from app.store.plans import plan_reads
from app.store.world import job_list
from app.store.world.slos import slos

router = APIRouter(include_in_schema=False)

MOST_HITS = 50  # of each kind


@dataclass(frozen=True, slots=True)
class SearchHit:
    """Something that was found."""

    kind: str
    name: str
    link: str


@router.get("/search")
def search_page(request: Request, ctx: Ctx, who: Viewer) -> Response:
    find, tenant = read_text(request.query_params, "find").lower(), shown_tenant(who)

    def read(connection: Connection) -> tuple[datetime, list[SearchHit]]:
        return clock.moment(connection), _search(connection, tenant, find) if find else []

    at, hits = ctx.database.read(read)
    if len(hits) == 1:
        return redirect(hits[0].link)
    return show(request, who, "search.html", at, find=find, hits=hits, most=MOST_HITS)


def _search(connection: Connection, tenant: str, find: str) -> list[SearchHit]:
    """Returns what bears the name, a plan by its number; a tenant finds its own and the nodes that it runs on."""
    number = read_id(find.removeprefix("plan ").strip())
    plans = [str(number)] if number is not None and plan_reads.read_head(connection, number) else []
    services = [name for name, _ in slos(connection, tenant) if find in name]
    jobs = [name for name, _ in job_list.list_jobs(connection, tenant, MOST_HITS, find=find)]
    nodes = [node.name for node in read_all_nodes(connection, tenant) if find in node.name]
    found = (("plan", plan_link, plans), ("service", service_link, services), ("job", job_link, jobs),
             ("node", node_link, nodes))  # fmt: skip
    return [SearchHit(kind, name, link(name)) for kind, link, names in found for name in names[:MOST_HITS]]
