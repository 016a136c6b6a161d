"""Reads what the address of a page asks for: filter, order, page. Ignores what makes no sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar
from urllib.parse import urlencode

from app.console.charts.ranges import read_range

SORTS = ("worst", "name", "rate", "attained", "instances", "cost")
STATES = ("unserved", "late", "kept", "quiet")
SEVERITIES = ("alarm", "warning", "info")
EVENT_KINDS = (
    "Service",
    "Node",
    "Job",
    "Plan",
    "Planner",
    "Gateway",
    "Profile",
    "Tenant",
    "Policy",
    "Model",
    "GpuType",
)
PHASES = ("queued", "starting", "running", "preempted", "failed", "finished")
LONGEST_ID = 18  # digits
LONGEST_NAME = 130  # tenant/name
LAST_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The parameters of a page, each a field; one with its default value is left out of the address."""

    PATH: ClassVar[str] = "/"

    def part(self, **changes: object) -> str:
        """Returns the part of the address from the question mark on, with these parameters changed."""
        wanted = replace(self, **changes)
        given = {field.name: value for field in fields(self) if (value := getattr(wanted, field.name)) != field.default}
        return f"{'?' if given else ''}{urlencode(given, safe='/')}"

    def url(self, anchor: str = "", **changes: object) -> str:
        """Returns the address of the page with these parameters changed."""
        return f"{self.PATH}{self.part(**changes)}{'#' if anchor else ''}{anchor}"


@dataclass(frozen=True, slots=True)
class FleetQuery(PageQuery):
    service: str = ""  # the only one coloured on the map
    fleet: int = 1  # page of the map
    range: str = ""  # of the charts; empty: as old as the fleet is
    table: str = ""  # the chart that has its table, too


@dataclass(frozen=True, slots=True)
class ChartsQuery(PageQuery):
    """Of a page whose address asks for nothing but its charts."""

    range: str = ""
    table: str = ""  # the chart that has its table, too


@dataclass(frozen=True, slots=True)
class ServicesQuery(PageQuery):
    PATH: ClassVar[str] = "/services"

    find: str = ""  # part of tenant/name
    state: str = ""
    sort: str = "worst"
    page: int = 1


@dataclass(frozen=True, slots=True)
class EventsQuery(PageQuery):
    PATH: ClassVar[str] = "/events"

    find: str = ""  # part of a name, a reason or a message
    severity: str = ""
    kind: str = ""
    name: str = ""  # exactly; of a tenant's object tenant/name
    before: int = 0  # older than this event; 0: the newest


@dataclass(frozen=True, slots=True)
class JobsQuery(PageQuery):
    PATH: ClassVar[str] = "/jobs"

    find: str = ""  # part of tenant/name
    name: str = ""  # exactly tenant/name
    phase: str = ""
    page: int = 1


def read_fleet_query(query: Mapping[str, str]) -> FleetQuery:
    return FleetQuery(
        service=read_text(query, "service"),
        fleet=read_number(query, "fleet"),
        range=read_range(query.get("range", "")),
        table=read_text(query, "table"),
    )


def read_charts_query(query: Mapping[str, str]) -> ChartsQuery:
    return ChartsQuery(range=read_range(query.get("range", "")), table=read_text(query, "table"))


def read_services_query(query: Mapping[str, str]) -> ServicesQuery:
    return ServicesQuery(
        find=read_text(query, "find").lower(),
        state=read_choice(query, "state", STATES),
        sort=read_choice(query, "sort", SORTS, "worst"),
        page=read_number(query, "page"),
    )


def read_id(text: str) -> int | None:
    """Returns the number of a plan, an event or an entry; None for what is no number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < LONGEST_ID else None


def read_events_query(query: Mapping[str, str]) -> EventsQuery:
    before = query.get("before", "")
    return EventsQuery(
        find=read_text(query, "find").lower(),
        severity=read_choice(query, "severity", SEVERITIES),
        kind=read_choice(query, "kind", EVENT_KINDS),
        name=read_text(query, "name"),
        before=read_id(before) or 0,
    )


def read_jobs_query(query: Mapping[str, str]) -> JobsQuery:
    return JobsQuery(
        find=read_text(query, "find").lower(),
        name=read_text(query, "name"),
        phase=read_choice(query, "phase", PHASES),
        page=read_number(query, "page"),
    )


def read_text(query: Mapping[str, str], name: str) -> str:
    """Returns the text without spaces around it; an empty one for what is too long or cannot be printed."""
    value = query.get(name, "").strip()
    return value if len(value) <= LONGEST_NAME and value.isprintable() else ""


def read_choice(query: Mapping[str, str], name: str, known: tuple[str, ...], default: str = "") -> str:
    value = query.get(name, "")
    return value if value in known else default


def read_number(query: Mapping[str, str], name: str) -> int:
    """Returns the number of a page, from 1 on."""
    value = query.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and 1 <= int(value[:6]) <= LAST_PAGE else 1
