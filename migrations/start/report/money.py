"""Views of the forecast of the month, of budgets, and of the prices and grids behind all reports."""

# ruff: noqa: S608 (put together from constants)
from __future__ import annotations

from migrations.start.report.cost import DIMENSIONS, NANO
from migrations.start.report.view import IN_ZONE, Column, View

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
MONEY_VIEWS = [FORECAST, BUDGETS, PRICES, CARBON]
