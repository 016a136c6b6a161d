"""Views of the forecast of the month, of budgets, and of the prices and grids behind all reports."""

# ruff: noqa: S608 (put together from constants)
from __future__ import annotations

from migrations.start.report.cost import DIMENSIONS, NANO
from migrations.start.report.view import IN_ZONE, MONTH, Column, View

# The last hour may not be accounted for yet: spending counts up to here, the forecast begins here.
CUT = "date_trunc('hour', moment() - interval '1 hour', 'UTC')"
# Once for all rows: as a column under the sums it would be computed for each.
HOURS_LEFT = f"(SELECT extract(epoch FROM date_trunc('month', moment()) + interval '1 month' - {CUT}) / 3600)"
BUDGET = "CAST(tenant.spec #>> '{budget,perMonth}' AS numeric)"
FORECAST = View(
    "forecast",
    f"The expected cost of the month {IN_ZONE}: the cost so far, and the rest at the pace of the last seven days.",
    [
        Column("month", "CAST(date_trunc('month', moment()) AS date)", f"The first day of the month {IN_ZONE}."),
        *(Column(name, name, DIMENSIONS[name]) for name in ("tenant", "service", "job")),
        Column("spent", f"sum(spent) * {NANO}", "Cost of this month, up to the last hour that is accounted for."),
        Column("per_hour", f"round(coalesce(sum(lately) / nullif(greatest(max(hours), 1), 0), 0) * {NANO}, 9)",
               "The mean cost of an hour in the last seven days, or since the first cost if that is later."),
        Column("hours_left", HOURS_LEFT, "Hours left in the month."),
        Column("forecast",
               f"round(coalesce(sum(spent), 0) * {NANO} + coalesce(sum(lately) / greatest(max(hours), 1), 0) * {NANO} "
               f"* {HOURS_LEFT}, 9)",
               "The expected cost of the whole month at this pace."),
        Column("is_early", "coalesce(max(hours), 0) < 24",
               "True while the pace is known from less than a day: then the forecast is little more than a guess."),
    ],
    f"""FROM (
    SELECT tenant, service, job, sum(nano) AS spent, NULL AS lately, NULL AS hours
    FROM report.cost_monthly
    WHERE month = CAST(date_trunc('month', moment()) AS date) GROUP BY 1, 2, 3
    UNION ALL
    SELECT tenant, service, job, NULL, sum(nano), extract(epoch FROM {CUT} - min(hour)) / 3600
    FROM report.cost
    WHERE hour >= {CUT} - interval '168 hours' AND hour < {CUT} GROUP BY 1, 2, 3
) AS parts GROUP BY tenant, service, job""",
)  # fmt: skip
BUDGETS = View(
    "budgets",
    f"Budgets of tenants, and the spending of this month {IN_ZONE}.",
    [
        Column("tenant", "tenant.name", "The tenant with the budget."),
        Column("month", "CAST(date_trunc('month', moment()) AS date)", f"The first day of the month {IN_ZONE}."),
        Column("budget", BUDGET, "The budget of a month."),
        Column("currency", "tenant.spec #>> '{budget,currency}'", "The budget's currency, as declared."),
        Column("over_budget", "coalesce(tenant.spec ->> 'overBudget', 'alarm')",
               "What happens when the budget is spent: alarm, freeze or degrade."),
        Column("spent", "coalesce(pace.spent, 0)", "Cost of this month so far."),
        Column("spent_share", f"round(coalesce(pace.spent, 0) / nullif({BUDGET}, 0), 6)",
               "The share of the budget that is spent."),
        Column("forecast", "coalesce(pace.forecast, 0)", "The expected cost of the month, from report.forecast."),
        Column("state",
               f"CASE WHEN coalesce(pace.spent, 0) >= {BUDGET} THEN 'over' "
               f"WHEN coalesce(pace.forecast, 0) > {BUDGET} THEN 'will be over' "
               "ELSE 'within' END",
               "over, will be over (before the month ends, at this pace), or within."),
    ],
    """FROM object AS tenant LEFT JOIN (
    SELECT tenant, sum(spent) AS spent, sum(forecast) AS forecast FROM report.forecast GROUP BY tenant
) AS pace ON pace.tenant = tenant.name
WHERE tenant.kind = 'Tenant' AND tenant.spec #> '{budget,perMonth}' IS NOT NULL""",
)  # fmt: skip
PRICES = View(
    "prices",
    "The price list by date: the cost of a GPU for an hour. Every report reader can read it.",
    [
        *(Column(name, name, DIMENSIONS[name]) for name in ("gpu_type", "region", "purchase")),
        Column("valid_from", "valid_from", "When the price came into force."),
        Column("valid_to", "valid_to", "When the price ended; null if it is in force."),
        Column("per_hour", f"nano_per_hour * {NANO}", "The price of a GPU for an hour."),
    ],
    "FROM price",
)
CARBON = View(
    "carbon_intensity",
    "Emissions of each region's grid, by date. Every report reader can read them.",
    [
        Column("region", "region", DIMENSIONS["region"]),
        Column("valid_from", "valid_from", "The first UTC day on which it holds."),
        Column("valid_to", "valid_to", "The first UTC day on which it no longer holds; null if it is in force."),
        Column("grams_per_kwh", "grams_per_kwh", "Grams of carbon dioxide equivalent for each kilowatt hour."),
        Column("source", "source", "The source of the figure."),
    ],
    "FROM carbon_intensity",
)
# What a GPU leaves idle is shared by those who used its node in the month, by their cost there.
INVOICE = View(
    "invoice",
    "What each tenant's services and jobs cost a month, with their share of idle GPUs: all costs, each once. Only for "
    "readers of the whole fleet.",
    [
        MONTH.column(),
        Column("tenant", "tenant", "The tenant; empty for GPUs that nobody used."),
        Column("service", "service", "The service; empty for jobs and unused GPUs."),
        Column("job", "job", "The job; empty for services and unused GPUs."),
        Column("used", f"coalesce(sum(nano) FILTER (WHERE is_used), 0) * {NANO}", "Cost of what was used."),
        Column("idle_share",
               f"round(coalesce(sum(idle_there * nano / used_there) FILTER (WHERE is_used), 0) * {NANO}, 9)",
               "The share of what was idle on its nodes, by its cost there; rounded to a billionth."),
        Column("unused", f"coalesce(sum(nano) FILTER (WHERE NOT is_used), 0) * {NANO}",
               "Cost of GPUs that nobody used."),
        Column("total",
               "round(sum(CASE WHEN is_used THEN nano * (1 + coalesce(idle_there, 0) / used_there) ELSE nano END) "
               f"* {NANO}, 9)",
               "Used, idle share and unused together, in the currency of the price list."),
    ],
    """FROM (
    SELECT *, sum(nano) FILTER (WHERE is_used) OVER place AS used_there,
        sum(nano) FILTER (WHERE is_idle) OVER place AS idle_there
    FROM (
        SELECT month, node, kind = 'used' AS is_used, kind = 'idle' AS is_idle,
            CASE WHEN kind = 'used' THEN tenant ELSE '' END AS tenant, service, job, sum(nano) AS nano
        FROM report.cost_monthly GROUP BY month, node, kind, tenant, service, job
    ) AS sums WINDOW place AS (PARTITION BY month, node)
) AS held
WHERE (is_used AND used_there > 0 OR NOT is_idle AND NOT is_used OR is_idle AND coalesce(used_there, 0) = 0)
    AND (SELECT report.reads_fleet())
GROUP BY month, tenant, service, job""",
)  # fmt: skip
MONEY_VIEWS = [FORECAST, BUDGETS, PRICES, CARBON, INVOICE]
