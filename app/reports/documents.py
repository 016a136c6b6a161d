"""Builds the JSON of a report: names in camelCase, and for money those of OpenCost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Literal, NotRequired, TypeAlias, TypedDict, cast
from zoneinfo import ZoneInfo

from msgspec import Meta

from app.manifests.model import Free
from app.store.money.report_queries import MoneyReport, ReportQuery
from app.store.world.objects import rfc3339
from app.wire import MomentText, spell_camel

Row = Free
ReportTotal: TypeAlias = Annotated[
    dict[str, float | None], Meta(description="Sums by figure; empty where items are alternatives of each other")
]

TOTAL = "totalCost"  # OpenCost's name; gpuCost and sharedCost come with it
SUMS = frozenset((
    "gpu_hours", "cost", "held_cost", "energy_kwh", "carbon_kg", "requests", "errors", "busy_hours", "asked_minutes",
    "violation_minutes", "released_gpu_hours", "saved",
))  # fmt: skip
UNHELD_KINDS = ("idle", "unallocated")
UNNAMED = "__none__"  # the cost of services in a report by job, and the reverse


class ReportWindowWire(TypedDict):
    """The time that a report covers."""

    start: MomentText
    end: MomentText


class ReportItemWire(TypedDict):
    """A row of a report: its dimensions in `properties`, and its figures by name."""

    name: str
    properties: dict[str, str | int | None]
    start: NotRequired[str]


class MoneyReportWire(TypedDict):
    """A report; the figures of `total` and of each item are those that the list of reports names."""

    kind: Literal["Report"]
    report: str
    window: ReportWindowWire
    timeZone: str
    currency: str
    by: list[str]
    total: ReportTotal
    items: list[ReportItemWire]


def word(report: MoneyReport, name: str) -> str:
    """Returns the name of a figure in JSON."""
    return TOTAL if name == "cost" and not report.always else spell_camel(name)


def item(query: ReportQuery, report: MoneyReport, row: Row) -> ReportItemWire:
    """Returns a row; a report of money has OpenCost's fields."""
    properties = {spell_camel(name): row[name] for name in query.by}
    values = {word(report, name): row[name] for name in report.values}
    wire: dict[str, object] = {"name": name_of(row, query.by), "properties": properties}
    if query.grain:
        wire["start"] = local(row["period"], query.zone)
    if TOTAL in values:
        # All cost is that of GPUs and none is shared: idle GPUs have a row of their own.
        values = {"gpuCost": row["cost"], "sharedCost": 0, **values}
    return cast(ReportItemWire, wire | values)


def name_of(row: Row, by: Sequence[str]) -> str:
    """Returns the subject of a row: `shop/search`, `a100/node-3`, `__idle__`, or `total` for everything."""
    unheld = f"__{row['kind']}__" if row.get("kind") in UNHELD_KINDS else ""
    parts = [str(row[name]) for name in by if name != "kind" and row[name] not in (None, "", unheld)]
    return "/".join([unheld, *parts] if unheld else parts) or (UNNAMED if by else "total")


def total(report: MoneyReport, rows: Sequence[Row]) -> Free:
    """Sums up the figures; nothing where rows are alternatives of each other, as baselines are."""
    sums: Free = {}
    for name in () if report.always else report.values:
        if name in SUMS:
            known = [row[name] for row in rows if row[name] is not None]
            sums[word(report, name)] = sum(known, start=Decimal(0)) if known else None
    return sums


def document(query: ReportQuery, report: MoneyReport, rows: Sequence[Row], currency: str) -> MoneyReportWire:
    """Returns the whole report."""
    return {
        "kind": "Report",
        "report": query.report,
        "window": {"start": rfc3339(query.begins), "end": rfc3339(query.ends)},
        "timeZone": query.zone,
        "currency": currency,
        "by": [spell_camel(name) for name in query.by] + ([query.grain] if query.grain else []),
        "total": total(report, rows),
        "items": [item(query, report, row) for row in rows],
    }


def local(moment: datetime, zone: str) -> str:
    """Formats a moment with the offset of its zone, so that it begins with the zone's date."""
    text = moment.astimezone(ZoneInfo(zone)).isoformat()
    return text.replace("+00:00", "Z")


def utc(moment: datetime) -> str:
    """Formats a moment as CSV files have it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
