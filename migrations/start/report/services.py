"""Views of services: requests, attainment of their SLOs, and the busy time of instances."""

# ruff: noqa: S608 (put together from constants)
from __future__ import annotations

from migrations.start.report.cost import DIMENSIONS, NANO, SUMS
from migrations.start.report.view import Column, Grain, View, at_each_grain, grouped

SERVICE = [Column(name, f"fact.{name}", DIMENSIONS[name]) for name in ("tenant", "service", "model")]


def _slo(grain: Grain) -> View:
    keys = [grain.column(grain.of_fact), *SERVICE]
    sums = [
        Column("slo_latency_ms", "max(fact.slo_ms)", "Within so many milliseconds requests were to be answered."),
        Column("slo_percentile", "max(fact.percentile)", "So many of a hundred requests were to be."),
        Column("requests", "sum(fact.requests)", "Requests that instances took."),
        Column("answered", "sum(fact.answers + fact.errors)", "Answers whose latency was counted, and errors."),
        Column("errors", "sum(fact.errors)", "Errors; an error is not in time."),
        Column("in_time", "round(sum(fact.in_time), 3)",
               "Answers within the SLO. Inside a bucket of the histogram latencies count as spread evenly."),
        Column("attainment", "round(sum(fact.in_time) / nullif(sum(fact.answers + fact.errors), 0), 6)",
               "The share that was answered in time; null where nothing was asked."),
        Column("is_attained",
               "100 * sum(fact.in_time) >= max(fact.percentile) * nullif(sum(fact.answers + fact.errors), 0)",
               "Whether the SLO was kept over the whole of this time."),
        Column("asked_minutes", "sum(fact.asked_minutes)", "Minutes in which something was asked."),
        Column("violation_minutes", "sum(fact.violation_minutes)",
               "Minutes in which fewer were in time than the SLO promises."),
    ]  # fmt: skip
    columns, source = grouped(sums, keys, f"FROM {grain.of_hours('service_hour')} WHERE fact.slo_ms IS NOT NULL")
    comment = (
        f"How services kept their SLO, {grain.adjective}. The SLO is the one in force when the hour was summed up."
    )
    return View(f"slo{grain.suffix}", comment, columns, source)


def _both(grain: Grain) -> str:
    """Returns ledger and service hours as rows with the same columns; each has zero in the other's columns."""
    return f"""FROM (
    SELECT {grain.period}, tenant, service, job, model, gpu_microseconds, nano,
        0 AS requests, 0 AS errors, 0 AS tokens, 0.0 AS busy_seconds, 0.0 AS instance_seconds
    FROM report.cost{grain.suffix} WHERE kind = 'used'
    UNION ALL
    SELECT {grain.of_fact}, fact.tenant, fact.service, '', fact.model, 0, 0,
        fact.requests, fact.errors, fact.tokens, fact.busy_seconds, fact.instance_seconds
    FROM {grain.of_hours("service_hour")}
) AS told"""


OWNERS = [Column(name, name, DIMENSIONS[name]) for name in ("tenant", "service", "job", "model")]
GPU_HOURS, COST, _ = SUMS
REQUESTS = Column("requests", "sum(requests)", "Requests that instances took.")


def _usage(grain: Grain) -> View:
    sums = [
        GPU_HOURS, COST, REQUESTS,
        Column("errors", "sum(errors)", "Requests that ended in an error."),
        Column("busy_hours", "round(sum(busy_seconds) / 3600, 6)", "Hours that instances were executing."),
        Column("instance_hours", "round(sum(instance_seconds) / 3600, 6)", "Hours that instances were there."),
        Column("utilisation", "round(sum(busy_seconds) / nullif(sum(instance_seconds), 0), 6)",
               "The share of its time that an instance was executing."),
    ]  # fmt: skip
    columns, source = grouped(sums, [grain.column(), *OWNERS], _both(grain))
    comment = f"What services and jobs held of GPUs, and what they did with it, {grain.adjective}."
    return View(f"usage{grain.suffix}", comment, columns, source)


def _per_request(grain: Grain) -> View:
    sums = [
        COST, REQUESTS,
        Column("tokens", "nullif(sum(tokens), 0)", "Tokens generated; null where no model server counts them."),
        Column("cost_per_1000_requests", f"round(sum(nano) * {NANO} * 1000 / nullif(sum(requests), 0), 9)",
               "Cost of a thousand requests; null where there were none."),
        Column("cost_per_million_tokens", f"round(sum(nano) * {NANO} * 1000000 / nullif(sum(tokens), 0), 9)",
               "Cost of a million tokens; null where they are not counted."),
    ]  # fmt: skip
    keys = [grain.column(), *OWNERS[:2]]
    columns, source = grouped(sums, keys, _both(grain) + "\nWHERE service <> ''")
    comment = (
        f"What requests to services cost, {grain.adjective}: the cost of all that a service held, over all it answered."
    )
    return View(f"cost_per_request{grain.suffix}", comment, columns, source)


SERVICE_VIEWS = [*at_each_grain(_slo), *at_each_grain(_usage), *at_each_grain(_per_request)]
