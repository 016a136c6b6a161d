"""What a report is asked for: which, by what, from when to when, and in which time zone its days begin."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from app.manifests.faults import escaped, nearest
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
OF_MACHINES = {"localtime", "posixrules", "Factory"}  # listed where they are installed, and zones of no place
OLDEST = datetime(1970, 2, 1, tzinfo=UTC)  # nothing was booked before, and months before it can be reckoned with


def parse_query(
    name: str, by: str, begins: str, ends: str, time_zone: str, tenant: str, now: datetime, most: int
) -> ReportQuery:
    """A question that can be answered; Problem names what cannot."""
    report = find_report(name)
    zone = _zone(time_zone)
    words = [word.strip() for word in by.split(",") if word.strip()] if by else list(report.default_by)
    grains = [word for word in words if word in GRAINS]
    dimensions = tuple(word.replace("gpuType", "gpu_type") for word in words if word not in GRAINS)
    if "tenant" not in dimensions and {"service", "job"}.intersection(dimensions):
        dimensions = ("tenant", *dimensions)  # two tenants may have a service of one name
    dimensions += tuple(word for word in report.always if word not in dimensions)
    if "kind" in report.dimensions and "kind" not in dimensions and HOLDERS.intersection(dimensions):
        dimensions += ("kind",)  # what nobody holds is told apart: idle, or with nothing on the GPU
    for word in dimensions:
        if word not in report.dimensions:
            allowed = [*report.dimensions, *GRAINS]
            meant = nearest(word, allowed)
            hint = f"did you mean {meant}?" if meant else f"allowed: {', '.join(allowed)}"
            raise HttpProblem("bad-request", f"a report of {name} is not by {escaped(word)!r}; {hint}")
    if len(grains) > 1 or len(set(dimensions)) < len(dimensions):
        raise HttpProblem("bad-request", f"by={escaped(by)}: each word once, and one of {', '.join(GRAINS)}")
    last = parse_moment("to", ends, zone, now) if ends else now
    first = parse_moment("from", begins, zone, now) if begins else _month_of(last, zone)
    if not first < last:
        raise HttpProblem("bad-request", f"from {first.isoformat()} is not before to {last.isoformat()}")
    grain = grains[0] if grains else ""
    if last - first > LONGEST[grain]:
        what = f"a report by {grain}" if grain else "a report"
        raise HttpProblem("bad-request", f"{what} covers {LONGEST[grain].days} days at most; ask for less")
    return ReportQuery(name, dimensions, grain, first, last, tenant, time_zone, most)


def find_report(name: str) -> MoneyReport:
    """The report of that name."""
    if name not in REPORTS:
        raise HttpProblem("not-found", f"there is no report {escaped(name)!r}; there are: {', '.join(REPORTS)}")
    return REPORTS[name]


def parse_moment(field: str, text: str, zone: ZoneInfo, now: datetime) -> datetime:
    """`2026-11-01` (midnight in the zone), an RFC 3339 moment, or `now`."""
    if text == "now":
        return now
    try:
        read = datetime.fromisoformat(text)
        read = (read if read.tzinfo else read.replace(tzinfo=zone)).astimezone(UTC)
        if read < OLDEST:
            raise ValueError
        return read
    except (ValueError, OverflowError):
        allowed = "a date as 2026-11-01, a moment as 2026-11-01T12:00:00Z (1970-02-01 or later), or now"
        raise HttpProblem("bad-request", f"{field}={escaped(text[:60])!r} is no moment; allowed: {allowed}") from None


def _zone(name: str) -> ZoneInfo:
    try:
        if name not in available_timezones() - OF_MACHINES:
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, OSError):  # no such file, a folder, or a path out of the data base
        raise HttpProblem(
            "bad-request", f"{escaped(name[:60])!r} is no time zone; allowed: names as Europe/Berlin"
        ) from None


def _month_of(last: datetime, zone: ZoneInfo) -> datetime:
    """When the month began in which `last` ends something."""
    local = (last - timedelta(microseconds=1)).astimezone(zone)
    return local.replace(day=1, hour=0, minute=0, second=0, microsecond=0).astimezone(UTC)
