"""Views of services: requests, attainment of their SLOs, and the busy time of instances."""

# ruff: noqa: S608 (put together from constants)
from __future__ import annotations

from migrations.start.report.cost import DIMENSIONS, NANO, SUMS
from migrations.start.report.view import Column, Grain, View, at_each_grain, grouped

KEEPS_PACE = "(sum(fact.paced) = 0 OR 100 * sum(fact.pace_in_time) >= max(fact.percentile) * sum(fact.paced))"
SERVICE = [Column(name, f"fact.{name}", DIMENSIONS[name]) for name in ("tenant", "service", "model")]


def _slo(grain: Grain) -> View:
    keys = [grain.column(grain.of_fact), *SERVICE]
    sums = [
        Column("slo_latency_ms", "max(fact.slo_ms)", "The latency of the SLO in milliseconds."),
        Column("slo_percentile", "max(fact.percentile)", "The percentage of requests to be answered within it."),
        Column("requests", "sum(fact.requests)", "Requests that instances received."),
        Column("answered", "sum(fact.answers + fact.errors)", "Answers with a measured latency, and errors."),
        Column("errors", "sum(fact.errors)", "Errors, which count as not in time."),
        Column("in_time", "round(sum(fact.in_time), 3)",
               "Answers within the SLO; latencies count as spread evenly within a bucket of the histogram."),
        Column("attainment", "round(sum(fact.in_time) / nullif(sum(fact.answers + fact.errors), 0), 6)",
               "The share of requests answered in time; null without requests."),
        Column("is_attained",
               "100 * sum(fact.in_time) >= max(fact.percentile) * nullif(sum(fact.answers + fact.errors), 0)"
               f" AND {KEEPS_PACE}",
               "True if the SLO was met over the whole period; of a language model, both for first tokens and for the "
               "pace of the others."),
        Column("asked_minutes", "sum(fact.asked_minutes)", "Minutes with requests."),
        Column("violation_minutes", "sum(fact.violation_minutes)",
               "Minutes in which the share in time was below the SLO."),
        Column("tpot_ms", "max(fact.tpot_ms)",
               "The promised time of each token after the first, in milliseconds; the latency is then that of the "
               "first."),
        Column("paced", "sum(fact.paced)", "Answers whose pace of tokens was compared with it."),
        Column("pace_in_time", "sum(fact.pace_in_time)", "Those of them that kept the pace."),
        Column("pace_attainment", "round(sum(fact.pace_in_time) / nullif(sum(fact.paced), 0), 6)",
               "The share of these that kept the pace; null without any."),
    ]  # fmt: skip
    columns, source = grouped(sums, keys, f"FROM {grain.of_hours('service_hour')} WHERE fact.slo_ms IS NOT NULL")
    comment = (
        f"Attainment of services' SLOs, {grain.adjective}. The SLO is the one in force when the hour was summed up."
    )
    return View(f"slo{grain.suffix}", comment, columns, source)


def _both(grain: Grain) -> str:
    """Returns ledger and service hours as rows with the same columns; each has zero in the other's columns."""
    return f"""FROM (
    SELECT {grain.period}, tenant, service, job, model, gpu_microseconds, nano,
        0 AS requests, 0 AS errors, 0 AS tokens, 0 AS tokens_in, 0.0 AS busy_seconds, 0.0 AS instance_seconds
    FROM report.cost{grain.suffix} WHERE kind = 'used'
    UNION ALL
    SELECT {grain.of_fact}, fact.tenant, fact.service, '', fact.model, 0, 0,
        fact.requests, fact.errors, fact.tokens, fact.tokens_in, fact.busy_seconds, fact.instance_seconds
    FROM {grain.of_hours("service_hour")}
) AS facts"""


OWNERS = [Column(name, name, DIMENSIONS[name]) for name in ("tenant", "service", "job", "model")]
GPU_HOURS, COST, _ = SUMS
REQUESTS = Column("requests", "sum(requests)", "Requests that instances received.")


def _usage(grain: Grain) -> View:
    sums = [
        GPU_HOURS, COST, REQUESTS,
        Column("errors", "sum(errors)", "Requests that ended in an error."),
        Column("busy_hours", "round(sum(busy_seconds) / 3600, 6)", "Hours in which instances were executing."),
        Column("instance_hours", "round(sum(instance_seconds) / 3600, 6)", "Hours in which instances existed."),
        Column("utilisation", "round(sum(busy_seconds) / nullif(sum(instance_seconds), 0), 6)",
               "The share of instance hours spent executing."),
    ]  # fmt: skip
    columns, source = grouped(sums, [grain.column(), *OWNERS], _both(grain))
    comment = f"GPU-hours of services and jobs, and their use, {grain.adjective}."
    return View(f"usage{grain.suffix}", comment, columns, source)


def _per_request(grain: Grain) -> View:
    sums = [
        COST, REQUESTS,
        Column("tokens", "nullif(sum(tokens), 0)", "Generated tokens; null if no model server counts them."),
        Column("cost_per_1000_requests", f"round(sum(nano) * {NANO} * 1000 / nullif(sum(requests), 0), 9)",
               "Cost of a thousand requests; null without requests."),
        Column("cost_per_million_tokens", f"round(sum(nano) * {NANO} * 1000000 / nullif(sum(tokens), 0), 9)",
               "Cost of a million tokens; null if they are not counted."),
        Column("tokens_in", "nullif(sum(tokens_in), 0)", "Tokens of prompts; null if no model server counts them."),
        Column("cost_per_million_tokens_in_and_out",
               f"round(sum(nano) * {NANO} * 1000000 / nullif(sum(tokens) + sum(tokens_in), 0), 9)",
               "Cost of a million tokens of prompts and answers together; null if they are not counted."),
    ]  # fmt: skip
    keys = [grain.column(), *OWNERS[:2]]
    columns, source = grouped(sums, keys, _both(grain) + "\nWHERE service <> ''")
    comment = (
        f"Cost of requests to services, {grain.adjective}: the cost of all GPU time of a service over all its requests."
    )
    return View(f"cost_per_request{grain.suffix}", comment, columns, source)


SERVICE_VIEWS = [*at_each_grain(_slo), *at_each_grain(_usage), *at_each_grain(_per_request)]
