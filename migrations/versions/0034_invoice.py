"""A view of what each tenant pays a month with its share of idle GPUs, and forecasts that say how young they are."""

from __future__ import annotations

from dataclasses import replace

from alembic import op

from migrations.start.report.cost import NANO
from migrations.start.report.money import BUDGETS, FORECAST
from migrations.start.report.view import MONTH, Column, View

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None
SERVES = "0025"

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
MARKED_FORECAST = replace(
    FORECAST,
    columns=[
        *FORECAST.columns,
        Column("is_early", "coalesce(max(hours), 0) < 24",
               "True while the pace is known from less than a day: then the forecast is little more than a guess."),
    ],
)  # fmt: skip
ADMIT = (
    "SELECT report.admit(role) FROM (SELECT DISTINCT role FROM report_reader JOIN pg_roles ON rolname = role) AS known"
)
UP = [
    INVOICE.statement,
    MARKED_FORECAST.statement.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1),
    ADMIT,
]
DOWN = [
    "DROP VIEW report.invoice",
    "DROP VIEW report.budgets, report.forecast",
    FORECAST.statement,
    BUDGETS.statement,
    ADMIT,
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
