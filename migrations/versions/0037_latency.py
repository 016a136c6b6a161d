"""A view of services' latencies by the minute: percentiles of what the planner counted in the last hours."""

from __future__ import annotations

from alembic import op

from migrations.start.report.rights import write_rights_of_readers
from migrations.start.report.tables import FLEET, TENANTS
from migrations.start.report.view import Column, View

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None
SERVES = "0025"

OF_PLANS = "SELECT (generation, at, others, cross_check) ON plan"
OF_LOADS = "SELECT (tenant, service, at, latency_counts) ON service_load"


# Buckets end at half a millisecond times powers of the twelfth root of ten; the last one has no end. A percentile lies
# in the bucket that reaches it.
PERCENTILES = (50, 95, 99)
REACHES = "before < total * {0} / 100.0 AND before + count >= total * {0} / 100.0"
INSIDE = "lower + (upper - lower) * (total * {0} / 100.0 - before) / count"
LATENCY = View(
    "latency",
    "Latencies of services by the minute, of the last three hours. Of a language model the first token's.",
    [
        Column("minute", "minute", "The minute, by its beginning."),
        Column("tenant", "tenant", "The tenant of the service."),
        Column("service", "service", "The service."),
        Column("answers", "CAST(max(total) AS bigint)", "Answers with a measured latency."),
        *(
            Column(
                f"p{percentile}_ms",
                f"round(CAST(max({INSIDE}) FILTER (WHERE {REACHES}) AS numeric), 3)".format(percentile),
                f"The latency within which {percentile} % of them came, in milliseconds, as if they were spread evenly "
                "within a bucket, each of which is a fifth wider than the one before it.",
            )
            for percentile in PERCENTILES
        ),
    ],
    """FROM (
    SELECT minute, tenant, service, count, sum(count) OVER whole AS total,
        sum(count) OVER (whole ORDER BY edge) - count AS before,
        CASE WHEN edge > 1 THEN 0.5 * power(10, (least(edge, 61) - 2) / 12.0) ELSE 0 END AS lower,
        0.5 * power(10, (least(edge, 60) - 1) / 12.0) AS upper
    FROM (
        SELECT minute, tenant, service, edge, sum(CAST(count AS double precision)) AS count
        FROM (
            SELECT date_trunc('minute', load.at - interval '1 microsecond') AS minute, tenant, service, latency_counts
            FROM service_load AS load
        ) AS loads, unnest(latency_counts) WITH ORDINALITY AS bucket (count, edge)
        WHERE count > 0 GROUP BY minute, tenant, service, edge
    ) AS counted
    WINDOW whole AS (PARTITION BY minute, tenant, service)
) AS histogram
GROUP BY minute, tenant, service""",
)
ADMIT_READERS = (
    "SELECT report.admit(role) FROM (SELECT DISTINCT role FROM report_reader JOIN pg_roles ON rolname = role) AS known"
)
DISMISS_READERS = ADMIT_READERS.replace("admit", "dismiss")

UP = [
    "ALTER TABLE service_load ENABLE ROW LEVEL SECURITY",
    f"CREATE POLICY report_reader ON service_load FOR SELECT USING ({FLEET} OR tenant = {TENANTS})",
    write_rights_of_readers(OF_PLANS, OF_LOADS),
    LATENCY.statement,
    ADMIT_READERS,
]
DOWN = [
    "DROP VIEW report.latency",
    DISMISS_READERS,
    write_rights_of_readers(OF_PLANS),
    ADMIT_READERS,
    "DROP POLICY report_reader ON service_load",
    "ALTER TABLE service_load DISABLE ROW LEVEL SECURITY",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
