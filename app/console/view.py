"""Renders the page from the data by templates, which escape all names. Pure."""

from __future__ import annotations

from collections.abc import Container
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.console import wording
from app.console.boxes import MOST_BOXES, MUTED, group_by_gpu
from app.console.data import ConsoleData
from app.console.events import group_events
from app.console.fleet import FleetPicture, draw_fleet
from app.console.jobs import job_lines
from app.console.money import Money
from app.console.page_request import SORTS, PageRequest
from app.console.services import make_page, make_rows
from app.console.trouble import find_troubles
from app.control.domain.events import reason_of

HERE = Path(__file__).parent
STATIC = HERE / "static"
MOST_REASONS = 30
SORT_WORDS = {
    "worst": "worst first", "name": "name", "rate": "most requests", "attained": "lowest attainment",
    "instances": "most instances", "cost": "most expensive",
}  # fmt: skip
MEDIA = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


@cache
def static(name: str) -> tuple[bytes, str]:
    """Returns a static file and its media type; KeyError for an unknown name."""
    known = {path.name: path for path in STATIC.iterdir() if path.suffix in MEDIA}
    path = known[name]
    return path.read_bytes(), MEDIA[path.suffix]


@cache
def address(name: str) -> str:
    """Returns the address of a static file; it changes with the content, so that browsers may keep the file forever."""
    return f"/console/{name}?{sha256(static(name)[0]).hexdigest()[:12]}"


@cache
def templates() -> Environment:
    """Returns the templates: they escape everything, and an unknown name is an error."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters |= {
        "number": wording.number, "percent": wording.percent, "money": wording.money, "age": wording.age,
        "clock": wording.clock, "words": wording.words,
    }  # fmt: skip
    made.globals |= {"address": address}
    return made


def render(name: str, **values: object) -> str:
    return templates().get_template(name).render(**values)


def page(data: ConsoleData, money: Money, request: PageRequest) -> str:
    """Renders the console's page."""
    every, whole = make_rows(data), draw_fleet(data, request)
    hues = {row.name: row.hue for row in every}
    shown = next((row for row in every if row.name == request.service), None)
    return render(
        "page.html",
        data=data,
        request=request,
        hue=lambda name: hues.get(name, MUTED),
        unknown=_unknown(data, request, hues),
        why=_why_planned(data),
        troubles=find_troubles(data, every, whole),
        services=make_page(every, request),
        fleet=whole,
        news=group_events(data.events),
        shown=shown,
        instances=[
            instance for instance in data.body.get("instances", ()) if shown and instance["service"] == shown.name
        ],
        jobs=job_lines(data.jobs),
        node=_node(data, request, whole),
        held=data.body.get("heldBack", ())[:MOST_REASONS],
        unserved=data.body.get("unserved", ())[:MOST_REASONS],
        unplaced=data.body.get("unplaced", ())[:MOST_REASONS],
        certificate=data.body.get("certificate") or {},
        rate=_rate(data),
        money=money,
        total=len(every),
        sorts=[(sort, SORT_WORDS[sort]) for sort in SORTS],
    )


def _why_planned(data: ConsoleData) -> str:
    """Returns a sentence that says what called for the plan in force."""
    word = (data.plan or {}).get("reason") or ""
    reason = reason_of(word)
    return reason.sentence if reason else word


def _unknown(data: ConsoleData, request: PageRequest, services: Container[str]) -> str:
    """Returns the kind of what the address names, if it does not exist; the name itself may be another tenant's."""
    if request.service and request.service not in services:
        return "service"
    nodes = {node.name for node in data.nodes}
    return "node" if request.node and request.node not in nodes else ""


def _rate(data: ConsoleData) -> float | None:
    """Returns the cost per hour of the plan in force; for a tenant that of its own services."""
    if not data.tenant:
        certificate = data.body.get("certificate") or {}
        cost: float | None = certificate.get("resourceCost")
        return cost
    prices = [service["pricePerHour"] for service in data.services if service["pricePerHour"] is not None]
    return sum(prices) if prices else None


def _node(data: ConsoleData, request: PageRequest, whole: FleetPicture) -> dict[str, Any] | None:
    """Returns the chosen node, GPU by GPU."""
    row = next((line for line in data.nodes if line.name == request.node), None)
    if row is None:
        return None
    residents = group_by_gpu(data.body).get(row.name, {})
    memory_gib = data.memory_gib.get(row.gpu_type)
    why = {index: reason for node, index, reason in whole.ailing if node == row.name}
    indexes = range(min(row.gpus, MOST_BOXES)) if row.gpus else sorted(residents)
    return {
        "name": row.name,
        "gpu_type": row.gpu_type,
        "silent": dict(whole.silent).get(row.name, ""),
        "reclaimed": dict(whole.reclaimed).get(row.name, ""),
        "last_report": row.received_at,
        "gpus": [
            {
                "index": index,
                "ailing": why.get(index, ""),
                "residents": residents.get(index, []),
                "sm_percent": sum(resident.sm_percent for resident in residents.get(index, [])),
                "memory_gib": sum(resident.memory_gib for resident in residents.get(index, [])),
                "of_gib": memory_gib,
                "minute": data.minutes.get(index),
            }
            for index in indexes
        ],
    }
