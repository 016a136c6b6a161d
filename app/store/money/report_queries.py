"""Queries of the money reports, one each, over the views of schema `report` alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from sqlalchemy import Connection, TextClause

from app.manifests.model import Free
from app.store.database.database import statement

MOST = 10_001  # rows; one more than a page holds shows that there are more
GRAINS = {"hour": "", "day": "_daily", "month": "_monthly"}


@dataclass(frozen=True, slots=True)
class MoneyReport:
    """One report: the dimensions that may split its rows, and its figures as sums over rows of a view.

    The view has `_daily` and `_monthly` forms. `always` holds the dimensions that are never summed over.
    """

    about: str
    view: str
    dimensions: tuple[str, ...]
    values: Mapping[str, str]  # name -> expression
    default_by: tuple[str, ...]
    always: tuple[str, ...] = ()
    is_of_fleet: bool = False  # hidden from tenants


LEDGER = ("tenant", "service", "job", "model", "gpu_type", "node", "gpu", "region", "purchase", "kind", "evidence")
GPU_HOURS = "round(sum(gpu_microseconds) / 3600000000.0, 6)"
ENERGY = "round(sum(energy_kwh), 6)"
# A GPU with any copy costs its whole price, once: what its holders pay, and what they leave idle.
HELD = "coalesce(sum(cost) FILTER (WHERE kind <> 'unallocated'), 0)"

REPORTS: Mapping[str, MoneyReport] = {
    "cost": MoneyReport(
        "the cost of GPUs by tenant, service and job, with idle and unallocated GPUs; and of those that held copies",
        "cost",
        LEDGER,
        {
            "gpu_hours": GPU_HOURS,
            "cost": "sum(cost)",
            "held_cost": HELD,
            "energy_kwh": "round(sum(energy_mj) / 3600000000.0, 6)",
        },
        ("tenant", "service", "job"),
    ),
    "usage": MoneyReport(
        "requests, GPU-hours, and the cost of a thousand requests",
        "usage",
        ("tenant", "service", "job", "model"),
        {
            "gpu_hours": "sum(gpu_hours)",
            "cost": "sum(cost)",
            "requests": "sum(requests)",
            "errors": "sum(errors)",
            "busy_hours": "sum(busy_hours)",
            "utilisation": "round(sum(busy_hours) / nullif(sum(instance_hours), 0), 6)",
            "cost_per_1000_requests": "round(1000 * sum(cost) / nullif(sum(requests), 0), 9)",
        },
        ("tenant", "service"),
    ),
    "tokens": MoneyReport(
        "tokens in and out, and the cost of a million tokens of answers",
        "cost_per_request",
        ("tenant", "service"),
        {
            "cost": "sum(cost)",
            "requests": "sum(requests)",
            "tokens_in": "coalesce(sum(tokens_in), 0)",
            "tokens_out": "coalesce(sum(tokens), 0)",
            "cost_per_million_tokens_out": "round(1000000 * sum(cost) / sum(tokens), 9)",
        },
        ("tenant", "service"),
    ),
    "slo": MoneyReport(
        "the share of requests answered in time, and minutes in violation of the SLO",
        "slo",
        ("tenant", "service", "model"),
        {
            "requests": "sum(requests)",
            "attainment": "round(sum(in_time) / nullif(sum(answered), 0), 6)",
            "slo_percentile": "max(slo_percentile)",
            "slo_latency_ms": "max(slo_latency_ms)",
            "asked_minutes": "sum(asked_minutes)",
            "violation_minutes": "sum(violation_minutes)",
            "tpot_ms": "max(tpot_ms)",
            "pace_attainment": "round(sum(pace_in_time) / nullif(sum(paced), 0), 6)",
        },
        ("tenant", "service"),
    ),
    "energy": MoneyReport(
        "energy in kilowatt-hours, and carbon",
        "energy",
        ("tenant", "service", "job", "model", "node", "gpu_type", "region"),
        {"energy_kwh": ENERGY, "carbon_kg": "round(sum(carbon_kg), 9)"},
        ("tenant", "service", "job"),
    ),
    "utilisation": MoneyReport(
        "the share of GPUs that is allocated, and that is busy",
        "utilisation",
        ("node", "gpu_type", "region"),
        {
            "gpu_hours": "sum(gpu_hours)",
            "allocated_share": "round(sum(used_gpu_hours) / nullif(sum(gpu_hours), 0), 6)",
            "sm_utilisation": "round(sum(busy_gpu_hours) / nullif(sum(measured_gpu_hours), 0), 6)",
        },
        ("gpu_type",),
        is_of_fleet=True,
    ),
    "savings": MoneyReport(
        "the cost of plans against what GPUs were really held, and against simpler baselines",
        "savings",
        ("tenant", "baseline"),
        {
            "cost": "sum(cost)",
            # Unknown where it is of any hour: a part of the time beside the whole would be misleading.
            "held_cost": "CASE WHEN count(held_cost) = count(*) THEN sum(held_cost) END",
            "baseline_cost": "sum(baseline_cost)",
            "saved": "sum(saved)",
        },
        ("baseline",),
        always=("baseline",),
    ),
    "savings_realised": MoneyReport(
        "nodes that were given back, and the cost that this saves",
        "savings_realised",
        ("gpu_type", "region", "purchase"),
        {"released_gpu_hours": "sum(released_gpu_hours)", "saved": "sum(saved)"},
        ("gpu_type",),
        is_of_fleet=True,
    ),
}


@dataclass(frozen=True, slots=True)
class ReportQuery:
    """A query of a report, from `begins` up to but without `ends`, in periods of `zone`."""

    report: str
    by: tuple[str, ...]
    grain: str  # hour, day, month; empty: one row for the whole time
    begins: datetime
    ends: datetime
    tenant: str = ""  # only this tenant's rows; empty: all
    zone: str = "UTC"
    most: int = MOST

    def __post_init__(self) -> None:
        if self.tenant and REPORTS[self.report].is_of_fleet:
            raise ValueError(f"the report {self.report} is of the whole fleet, and not of tenant {self.tenant}")


IN_ZONE = statement("report_in_zone", "SELECT set_config('TimeZone', :zone, true)")
ARE_MIDNIGHTS = statement(
    "report_from_midnight_to_midnight",
    """
    SELECT CAST(:begins AS timestamptz) = date_trunc('day', CAST(:begins AS timestamptz))
       AND CAST(:ends AS timestamptz) = date_trunc('day', CAST(:ends AS timestamptz))
    """,
)


def read(connection: Connection, query: ReportQuery) -> list[Free]:
    """Returns rows in order of period and dimensions: `period` (if there is a grain), the dimensions `by`, the values.

    With a grain, periods are whole, beginning with the one that contains `begins`. Without a grain, the hours that
    begin in the time count. Sets the transaction's time zone.
    """
    connection.execute(IN_ZONE, {"zone": query.zone})
    times = {"begins": query.begins, "ends": query.ends}
    grain = query.grain
    if not grain:
        grain = "day" if connection.execute(ARE_MIDNIGHTS, times).scalar_one() else "hour"
    sql = _query(query.report, query.by, grain, bool(query.grain), bool(query.tenant))
    rows = connection.execute(sql, {**times, "most": query.most, "tenant": query.tenant})
    return [dict(row._mapping) for row in rows]


@lru_cache(maxsize=500)
def _query(name: str, by: tuple[str, ...], grain: str, by_period: bool, of_tenant: bool) -> TextClause:
    """Builds the query from names of this module alone; the caller's values are bound."""
    report = REPORTS[name]
    unknown = [dimension for dimension in by if dimension not in report.dimensions]
    if unknown:
        raise KeyError(f"{name} is not split by {', '.join(unknown)}; it is by {', '.join(report.dimensions)}")
    keys = (*(dimension for dimension in report.always if dimension not in by), *by)
    period = [f"CAST({grain} AS timestamptz) AS period"] if by_period else []
    columns = ", ".join([*period, *keys, *(f"{sums} AS {value}" for value, sums in report.values.items())])
    groups = ", ".join(str(place + 1) for place in range(len(period) + len(keys)))
    within = _WITHIN[grain] + (" AND tenant = :tenant" if of_tenant else "")
    grouping = f"GROUP BY {groups} ORDER BY {groups} LIMIT :most" if groups else "HAVING count(*) > 0"
    return statement(
        f"report_{name}", f"SELECT {columns} FROM report.{report.view}{GRAINS[grain]} WHERE {within} {grouping}"
    )


_WITHIN = {
    "hour": "hour >= date_trunc('hour', CAST(:begins AS timestamptz), 'UTC') AND hour < CAST(:ends AS timestamptz)",
    **{
        unit: f"{unit} >= CAST(date_trunc('{unit}', CAST(:begins AS timestamptz)) AS date) "
        f"AND {unit} <= CAST(CAST(:ends AS timestamptz) - interval '1 microsecond' AS date)"
        for unit in ("day", "month")
    },
}
