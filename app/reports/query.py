"""Reads the query of a report: its dimensions, its span, and the time zone in which its days begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from app.manifests.faults import escape, nearest
from app.problem import HttpProblem
from app.store.money.report_queries import REPORTS, MoneyReport, ReportQuery

GRAINS = ("hour", "day", "month")
HOLDERS = frozenset(("tenant", "service", "job", "model"))
LONGEST = {
    "": timedelta(days=1100),
    "hour": timedelta(days=62),
    "day": timedelta(days=1100),
    "month": timedelta(days=11_000),
}
OF_MACHINES = {"localtime", "posixrules", "Factory"}  # listed on some machines, but zones of no place
OLDEST = datetime(1970, 2, 1, tzinfo=UTC)  # older than any booking, and late enough to compute months before it


@dataclass(frozen=True, slots=True)
class ReportSpan:
    """The time that a report covers, as the caller wrote it."""

    begins: str  # empty: the first of the month
    ends: str  # empty: now
    time_zone: str
    now: datetime


def parse_query(name: str, by: str, span: ReportSpan, tenant: str, most_rows: int) -> ReportQuery:
    """Returns a query that the store can answer; and refuses all others by name."""
    report = find_report(name)
    zone = _zone(span.time_zone)
    words = [word.strip() for word in by.split(",") if word.strip()] if by else list(report.default_by)
    grains = [word for word in words if word in GRAINS]
    dimensions = _dimensions(report, words)
    _refuse_unknown(name, report, dimensions)
    if len(grains) > 1 or len(set(dimensions)) < len(dimensions):
        detail = f"by={escape(by)}: name each dimension once, and only one of {', '.join(GRAINS)}"
        raise HttpProblem("bad-request", detail)
    last = parse_moment("to", span.ends, zone, span.now) if span.ends else span.now
    first = parse_moment("from", span.begins, zone, span.now) if span.begins else _month_of(last, zone)
    if not first < last:
        raise HttpProblem("bad-request", f"from {first.isoformat()} is not before to {last.isoformat()}")
    grain = grains[0] if grains else ""
    if last - first > LONGEST[grain]:
        what = f"a report by {grain}" if grain else "a report"
        raise HttpProblem("bad-request", f"{what} covers {LONGEST[grain].days} days at most; ask for less")
    return ReportQuery(name, dimensions, grain, first, last, tenant, span.time_zone, most_rows)


def _dimensions(report: MoneyReport, words: Sequence[str]) -> tuple[str, ...]:
    """Returns the dimensions that were asked for, and those without which rows would mix."""
    found = tuple(word.replace("gpuType", "gpu_type") for word in words if word not in GRAINS)
    if "tenant" not in found and {"service", "job"}.intersection(found):
        found = ("tenant", *found)  # two tenants may have a service of the same name
    found += tuple(word for word in report.always if word not in found)
    if "kind" in report.dimensions and "kind" not in found and HOLDERS.intersection(found):
        found += ("kind",)  # separates idle and unallocated GPUs, which no tenant holds
    return found


def _refuse_unknown(name: str, report: MoneyReport, dimensions: Sequence[str]) -> None:
    for word in dimensions:
        if word not in report.dimensions:
            allowed = [*(known.replace("gpu_type", "gpuType") for known in report.dimensions), *GRAINS]
            meant = nearest(word, allowed)
            hint = f"did you mean {meant}?" if meant else f"allowed: {', '.join(allowed)}"
            raise HttpProblem("bad-request", f"the report {name} has no dimension {escape(word)!r}; {hint}")


def find_report(name: str) -> MoneyReport:
    """Returns the report of that name."""
    if name not in REPORTS:
        meant = nearest(name, REPORTS)
        hint = f"did you mean {meant}?" if meant else f"known: {', '.join(REPORTS)}"
        raise HttpProblem("not-found", f"there is no report {escape(name)!r}; {hint}")
    return REPORTS[name]


def parse_moment(field: str, text: str, zone: ZoneInfo, now: datetime) -> datetime:
    """Reads `2026-11-01` (midnight in the zone), an RFC 3339 moment, or `now`."""
    if text == "now":
        return now
    try:
        read = datetime.fromisoformat(text)
        read = (read if read.tzinfo else read.replace(tzinfo=zone)).astimezone(UTC)
        if read < OLDEST:
            raise ValueError
        return read
    except (ValueError, OverflowError):
        allowed = "a date like 2026-11-01, a moment like 2026-11-01T12:00:00Z (1970-02-01 or later), or now"
        detail = f"{field}={escape(text[:60])!r} is not a moment; allowed: {allowed}"
        raise HttpProblem("bad-request", detail) from None


def _zone(name: str) -> ZoneInfo:
    try:
        if name not in available_timezones() - OF_MACHINES:
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, OSError):  # no such file, a folder, or a path outside the time zone database
        raise HttpProblem(
            "bad-request", f"{escape(name[:60])!r} is not a time zone; allowed: names like Europe/Berlin"
        ) from None


def _month_of(last: datetime, zone: ZoneInfo) -> datetime:
    """Returns the beginning of the month that `last` ends or lies in."""
    local = (last - timedelta(microseconds=1)).astimezone(zone)
    return local.replace(day=1, hour=0, minute=0, second=0, microsecond=0).astimezone(UTC)
