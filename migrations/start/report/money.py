"""Views of the forecast of the month, of budgets, and of the prices and grids behind all reports."""

# ruff: noqa: S608 (put together from constants)
from __future__ import annotations

from migrations.start.report.cost import DIMENSIONS, NANO
from migrations.start.report.view import IN_ZONE, Column, View

# The last hour may not be accounted for yet: spending counts up to here, the forecast begins here.
CUT = "date_trunc('hour', moment() - interval '1 hour', 'UTC')"
# Once for all rows: as a column under the sums it would be computed for each.
LEFT = f"(SELECT extract(epoch FROM date_trunc('month', moment()) + interval '1 month' - {CUT}) / 3600)"
BUDGET = "CAST(tenant.spec #>> '{budget,perMonth}' AS numeric)"
FORECAST = View(
    "forecast",
    f"What the month {IN_ZONE} will have cost: what is spent, and the rest of it at the pace of the last seven days.",
    [
        Column("month", "CAST(date_trunc('month', moment()) AS date)", f"The first day of the month {IN_ZONE}."),
        *(Column(name, name, DIMENSIONS[name]) for name in ("tenant", "service", "job")),
        Column("spent", f"sum(spent) * {NANO}", "Spent in this month, up to the last hour that is accounted for."),
        Column("per_hour", f"round(coalesce(sum(lately) / nullif(greatest(max(hours), 1), 0), 0) * {NANO}, 9)",
               "The mean cost of an hour in the last seven days; of what began in them, since it began."),
        Column("hours_left", LEFT, "Hours of the month that are still to come."),
        Column("forecast",
               f"round(coalesce(sum(spent), 0) * {NANO} + coalesce(sum(lately) / greatest(max(hours), 1), 0) * {NANO} "
               f"* {LEFT}, 9)",
               "What the month will have cost at this pace."),
    ],
    f"""FROM (
    SELECT tenant, service, job, sum(nano) AS spent, NULL AS lately, NULL AS hours
    FROM report.cost_monthly
    WHERE month = CAST(date_trunc('month', moment()) AS date) GROUP BY 1, 2, 3
    UNION ALL
    SELECT tenant, service, job, NULL, sum(nano), extract(epoch FROM {CUT} - min(hour)) / 3600
    FROM report.cost
    WHERE hour >= {CUT} - interval '168 hours' AND hour < {CUT} GROUP BY 1, 2, 3
) AS told GROUP BY tenant, service, job""",
)  # fmt: skip
BUDGETS = View(
    "budgets",
    f"Budgets of tenants, and how they stand in this month {IN_ZONE}.",
    [
        Column("tenant", "tenant.name", "Whose budget it is."),
        Column("month", "CAST(date_trunc('month', moment()) AS date)", f"The first day of the month {IN_ZONE}."),
        Column("budget", BUDGET, "What may be spent in a month."),
        Column("currency", "tenant.spec #>> '{budget,currency}'", "Its currency, as the manifest says."),
        Column("over_budget", "coalesce(tenant.spec ->> 'overBudget', 'alarm')",
               "What happens when it is spent: alarm, freeze or degrade."),
        Column("spent", "coalesce(pace.spent, 0)", "Spent in this month."),
        Column("spent_share", f"round(coalesce(pace.spent, 0) / nullif({BUDGET}, 0), 6)",
               "What that is of the budget."),
        Column("forecast", "coalesce(pace.forecast, 0)", "What the month will have cost, as report.forecast says."),
        Column("state",
               f"CASE WHEN coalesce(pace.spent, 0) >= {BUDGET} THEN 'over' "
               f"WHEN coalesce(pace.forecast, 0) > {BUDGET} THEN 'will be over' "
               "ELSE 'within' END",
               "over, will be over (at this pace, before the month ends), or within."),
    ],
    """FROM object AS tenant LEFT JOIN (
    SELECT tenant, sum(spent) AS spent, sum(forecast) AS forecast FROM report.forecast GROUP BY tenant
) AS pace ON pace.tenant = tenant.name
WHERE tenant.kind = 'Tenant' AND tenant.spec #> '{budget,perMonth}' IS NOT NULL""",
)  # fmt: skip
PRICES = View(
    "prices",
    "The price list by date: what an hour of a GPU costs. All who read reports see it.",
    [
        *(Column(name, name, DIMENSIONS[name]) for name in ("gpu_type", "region", "purchase")),
        Column("valid_from", "valid_from", "From when on."),
        Column("valid_to", "valid_to", "Until when; null: it is in force."),
        Column("per_hour", f"nano_per_hour * {NANO}", "What one GPU costs an hour."),
    ],
    "FROM price",
)
CARBON = View(
    "carbon_intensity",
    "How much carbon dioxide equivalent the grid of a region emits, by date. All who read reports see it.",
    [
        Column("region", "region", DIMENSIONS["region"]),
        Column("valid_from", "valid_from", "From which UTC day on."),
        Column("valid_to", "valid_to", "Until before which UTC day; null: it is in force."),
        Column("grams_per_kwh", "grams_per_kwh", "Grams of carbon dioxide equivalent a kilowatt hour."),
        Column("source", "source", "Where the figure is from."),
    ],
    "FROM carbon_intensity",
)
MONEY_VIEWS = [FORECAST, BUDGETS, PRICES, CARBON]
