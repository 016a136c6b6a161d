"""Views of cost and energy: sums of the ledger by hour, and by day and month of any time zone."""

# ruff: noqa: S608 (put together from constants)
from __future__ import annotations

from migrations.start.report.view import DAY, HOUR, Column, Grain, View, at_each_grain, grouped, within

NANO = "0.000000001"
DIMENSIONS = {
    "node": "The node.",
    "gpu": "Index of the GPU on its node.",
    "gpu_type": "The GPU type.",
    "region": "Region of the node.",
    "purchase": "The kind of purchase: owned, reserved, onDemand or spot.",
    "tenant": "The tenant of the service or job; __idle__: the idle part of a GPU; __unallocated__: an unused GPU.",
    "service": "The service; empty for jobs and unused time.",
    "job": "The job; empty for services and unused time.",
    "model": "The model that the service serves; empty if there is none.",
    "kind": "used, idle or unallocated.",
    "evidence": "measured, or gap: presumed, because no report covers that time.",
}
MEASURES = (
    Column("gpu_microseconds", "gpu_microseconds", "Millionths of a second of a whole GPU; a half GPU counts half."),
    Column(
        "nano", "nano", "The cost in billionths of the currency of the price list: whole numbers, so sums are exact."
    ),
    Column("cost", f"nano * {NANO}", "The cost in the currency of the price list."),
    Column("energy_mj", "energy_mj", "Energy in millijoules, as its part of the GPU's energy; null if not measured."),
)
SUMS = (
    Column("gpu_hours", "round(sum(gpu_microseconds) / 3600000000.0, 6)", "GPU-hours: one is a whole GPU for an hour."),
    Column("cost", f"sum(nano) * {NANO}", "Cost in the currency of the price list, exact to nine decimals."),
    Column(
        "energy_kwh", "round(sum(energy_mj) / 3600000000.0, 6)",
        "Energy in kilowatt hours; null if not measured.",
    ),
)  # fmt: skip
WHO = "CASE WHEN fact.tenant = '' THEN '__' || fact.kind || '__' ELSE fact.tenant END"
DIMENSIONS_OF_FACT = ", ".join(f"{WHO} AS tenant" if name == "tenant" else f"fact.{name}" for name in DIMENSIONS)

PERIODS = """
SELECT {period}, starts_at, stops_at,
    date_trunc('hour', starts_at + interval '1 hour' - interval '1 microsecond', 'UTC') AS hours_from,
    least(date_trunc('day', starts_at + interval '24 hours' - interval '1 microsecond', 'UTC'),
          date_trunc('hour', stops_at, 'UTC')) AS days_from,
    greatest(date_trunc('day', starts_at + interval '24 hours' - interval '1 microsecond', 'UTC'),
             date_trunc('day', stops_at, 'UTC')) AS days_to,
    date_trunc('hour', stops_at, 'UTC') AS hours_to
FROM (SELECT day AS {period}, CAST(day AS timestamptz) AS starts_at, CAST({following} AS timestamptz) AS stops_at
      FROM report.calendar WHERE day <= CAST(moment() AS date){only}) AS period
"""


def _periods(name: str, grain_comment: str, period: str, following: str, only: str) -> View:
    comments = {
        period: grain_comment,
        "starts_at": "The beginning of the period.",
        "stops_at": "The beginning of the next period.",
        "hours_from": "The first whole UTC hour in it: earlier time is summed by quarter-hours.",
        "days_from": "The first whole UTC day in it: earlier time is summed by hours.",
        "days_to": "The end of the last whole UTC day in it: later time is summed by hours.",
        "hours_to": "The end of the last whole UTC hour in it: later time is summed by quarter-hours.",
    }
    source = PERIODS.format(period=period, following=following, only=only)
    return View(
        name, f"{grain_comment} Up to today. Its beginning and end, and the ledger's sums that lie wholly in it.",
        [Column(column, column, text) for column, text in comments.items()], f"FROM ({source}) AS period",
    )  # fmt: skip


PERIOD_VIEWS = [
    _periods("days", DAY.comment, "day", "day + 1", ""),
    _periods("months", "The first day of the month of the session's time zone.", "month", "day + interval '1 month'",
             " AND extract(day FROM day) = 1"),
]  # fmt: skip


def _pieces(grain: Grain) -> str:
    """Returns the ledger's sums in each period: whole UTC days, then hours at its edges, then quarter-hours."""
    bounds = {
        "cost_day": [("day", "days_from", "days_to")],
        "cost_hour": [("hour", "hours_from", "days_from"), ("hour", "days_to", "hours_to")],
        "allocation": [("slice", "starts_at", "hours_from"), ("slice", "hours_to", "stops_at")],
    }
    found = []
    for table, ranges in bounds.items():
        for at, begins, ends in ranges:
            found.append(
                f"SELECT calendar.{grain.period}, fact.{at} AS at, {DIMENSIONS_OF_FACT},\n"
                "    fact.gpu_microseconds, fact.nano, fact.energy_mj\n"
                f"FROM {within(grain.calendar, table, at, begins, ends)}"
            )
    return "\nUNION ALL\n".join(found)


def _cost(grain: Grain) -> View:
    if grain is HOUR:
        source = (
            f"FROM (SELECT fact.hour, fact.hour AS at, {DIMENSIONS_OF_FACT}, fact.gpu_microseconds, fact.nano,\n"
            "    fact.energy_mj FROM cost_hour AS fact) AS ledger"
        )
    else:
        source = f"FROM (\n{_pieces(grain)}\n) AS ledger"
    at = Column("at", "at", "The beginning of the UTC day, hour or quarter-hour that the row sums up.")
    return View(
        f"cost{grain.suffix}",
        f"The ledger's {grain.adjective} sums with all their dimensions, from which the other cost views are made.",
        [grain.column(), at, *(Column(name, name, text) for name, text in DIMENSIONS.items()), *MEASURES],
        source,
    )


BY = {
    "service": ("tenant", "service", "job"),
    "tenant": ("tenant",),
    "model": ("tenant", "model"),
    "gpu_type": ("tenant", "gpu_type", "region", "purchase"),
    "node": ("tenant", "node", "gpu_type", "region", "purchase"),
}


def _by(what: str) -> list[View]:
    def at(grain: Grain) -> View:
        keys = [grain.column(), *(Column(name, name, DIMENSIONS[name]) for name in BY[what])]
        columns, source = grouped(SUMS, keys, f"FROM report.cost{grain.suffix}")
        about = {"service": "service and job", "gpu_type": "GPU type"}.get(what, what)
        return View(f"cost_by_{what}{grain.suffix}", f"Cost, GPU-hours and energy by {about}, {grain.adjective}.",
                    columns, source)  # fmt: skip

    return at_each_grain(at)


def _energy(grain: Grain) -> View:
    keys = [
        grain.column(),
        *(Column(name, f"ledger.{name}", DIMENSIONS[name])
          for name in ("tenant", "service", "job", "model", "node", "gpu_type", "region")),
    ]  # fmt: skip
    sums = [
        Column("energy_kwh", "round(sum(energy_mj) / 3600000000.0, 6)",
               "Energy in kilowatt hours, split like the cost of a GPU; null if not measured."),
        Column("carbon_kg", "round(sum(energy_mj * grams_per_kwh) / 3600000000000.0, 9)",
               "Carbon dioxide equivalent in kilograms, by report.carbon_intensity; null if the region has no entry."),
    ]  # fmt: skip
    columns, source = grouped(
        sums, keys,
        f"FROM report.cost{grain.suffix} AS ledger LEFT JOIN carbon_intensity AS grid ON grid.region = ledger.region\n"
        "    AND CAST(ledger.at AT TIME ZONE 'UTC' AS date) >= grid.valid_from\n"
        "    AND CAST(ledger.at AT TIME ZONE 'UTC' AS date) < coalesce(grid.valid_to, 'infinity')",
    )  # fmt: skip
    comment = f"Energy and carbon by service, job, node and region, {grain.adjective}."
    return View(f"energy{grain.suffix}", comment, columns, source)


COST_VIEWS = [*at_each_grain(_cost), *(view for what in BY for view in _by(what)), *at_each_grain(_energy)]
