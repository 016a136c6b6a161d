"""A report's rows in the words of the interface: camelCase, and for money those of OpenCost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from app.store.money.report_queries import MoneyReport, ReportQuery
from app.store.world.objects import rfc3339

Row = Mapping[str, Any]

TOTAL = "totalCost"  # OpenCost's; gpuCost and sharedCost stand beside it
SUMS = frozenset((
    "gpu_hours", "cost", "energy_kwh", "carbon_kg", "requests", "errors", "busy_hours", "asked_minutes",
    "violation_minutes", "released_gpu_hours", "saved",
))  # fmt: skip
NOBODYS = ("idle", "unallocated")
UNNAMED = "__none__"  # by job, what services cost; and the other way round


def camel(name: str) -> str:
    """gpu_type -> gpuType."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def word(report: MoneyReport, name: str) -> str:
    """A figure's name in JSON."""
    return TOTAL if name == "cost" and not report.always else camel(name)


def item(asked: ReportQuery, report: MoneyReport, row: Row) -> dict[str, Any]:
    """One row; a report of money has OpenCost's fields."""
    properties = {camel(name): row[name] for name in asked.by}
    values = {word(report, name): row[name] for name in report.values}
    wire: dict[str, Any] = {"name": name_of(row, asked.by), "properties": properties}
    if asked.grain:
        wire["start"] = local(row["period"], asked.zone)
    if TOTAL in values:
        # All cost here is of GPUs, and none is spread over others: idle stands as a row of its own.
        values = {"gpuCost": row["cost"], "sharedCost": 0, **values}
    return wire | values


def name_of(row: Row, by: Sequence[str]) -> str:
    """`shop/search`, `a100/node-3`, `__idle__`: what the row is about; `total` where it is about everything."""
    nobody = f"__{row['kind']}__" if row.get("kind") in NOBODYS else ""
    parts = [str(row[name]) for name in by if name != "kind" and row[name] not in (None, "", nobody)]
    return "/".join([nobody, *parts] if nobody else parts) or (UNNAMED if by else "total")


def total(report: MoneyReport, rows: Sequence[Row]) -> dict[str, Any]:
    """The sums of what may be summed; none where rows are alternatives of each other, as baselines are."""
    sums: dict[str, Any] = {}
    for name in () if report.always else report.values:
        if name in SUMS:
            known = [row[name] for row in rows if row[name] is not None]
            sums[word(report, name)] = sum(known, start=Decimal(0)) if known else None
    return sums


def document(asked: ReportQuery, report: MoneyReport, rows: Sequence[Row], currency: str) -> dict[str, Any]:
    """The whole answer."""
    return {
        "kind": "Report",
        "report": asked.report,
        "window": {"start": rfc3339(asked.begins), "end": rfc3339(asked.ends)},
        "timeZone": asked.zone,
        "currency": currency,
        "by": [camel(name) for name in asked.by] + ([asked.grain] if asked.grain else []),
        "total": total(report, rows),
        "items": [item(asked, report, row) for row in rows],
    }


def local(moment: datetime, zone: str) -> str:
    """With the offset that the zone has then: the date that it begins with is the zone's."""
    text = moment.astimezone(ZoneInfo(zone)).isoformat()
    return text.replace("+00:00", "Z")


def utc(moment: datetime) -> str:
    """As CSV files have it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
