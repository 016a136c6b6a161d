"""What was forecast of each service's rate, beside what came: bands of ten minutes, hours ahead, and a view of both."""

# ruff: noqa: S608 (put together from constants)
from __future__ import annotations

from alembic import op

from migrations.start.report.rights import write_rights_of_readers
from migrations.start.report.tables import FLEET, TENANTS
from migrations.start.report.view import Column, View

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None
SERVES = "0025"

OF_PLANS = "SELECT (generation, at, others, cross_check) ON plan"
OF_LOADS = "SELECT (tenant, service, at, latency_counts) ON service_load"
BANDS = "seconds, requests, planned, low, high, bands, bands_held"
OF_BANDS = f"SELECT ({BANDS}) ON service_load"
OF_HOURS = f"SELECT (tenant, service, hour, {BANDS}) ON service_load_hour"


def _mean(column: str) -> str:
    """Returns a rate over the hour; null where it is unknown of a part of it."""
    known = f"CASE WHEN count({column}) = count(*) THEN sum({column}) END"
    return f"round(CAST({known} / nullif(sum(seconds), 0) AS numeric), 3)"


DEMAND = View(
    "demand",
    "Requests to services by the hour, beside what was planned for and forecast, of the last 32 days.",
    [
        Column("hour", "hour", "When the hour began. Hours are those of UTC."),
        Column("tenant", "tenant", "The tenant of the service."),
        Column("service", "service", "The service."),
        Column("requests_per_second", _mean("requests"), "The mean rate while it was counted."),
        Column("planned_per_second", _mean("planned"), "The rate that plans were made for; null where it is unknown."),
        Column(
            "low_per_second", _mean("low"),
            "The mean lower edge of the forecasts ten minutes ahead: the rate was to be lower one of ten times.",
        ),
        Column(
            "high_per_second", _mean("high"),
            "The mean upper edge: the rate was to be higher one of ten times.",
        ),
        Column("forecasts", "CAST(sum(bands) AS bigint)", "Steps of ten minutes that ended, each with a forecast."),
        Column("forecasts_held", "CAST(sum(bands_held) AS bigint)", "Those of them whose rate lay between the edges."),
    ],
    f"""FROM (
    SELECT date_trunc('hour', at - interval '1 microsecond', 'UTC') AS hour, tenant, service, {BANDS} FROM service_load
    UNION ALL
    SELECT hour, tenant, service, {BANDS} FROM service_load_hour
) AS load
GROUP BY hour, tenant, service""",
)  # fmt: skip
ADMIT_READERS = (
    "SELECT report.admit(role) FROM (SELECT DISTINCT role FROM report_reader JOIN pg_roles ON rolname = role) AS known"
)
DISMISS_READERS = ADMIT_READERS.replace("admit", "dismiss")
ADD_BANDS = """
    ALTER TABLE {table}
        ADD COLUMN low double precision, ADD COLUMN high double precision,
        ADD COLUMN bands {number} NOT NULL DEFAULT 0, ADD COLUMN bands_held {number} NOT NULL DEFAULT 0
"""
DROP_BANDS = "ALTER TABLE {table} DROP COLUMN low, DROP COLUMN high, DROP COLUMN bands, DROP COLUMN bands_held"

UP = [
    ADD_BANDS.format(table="service_load", number="smallint"),
    "ALTER TABLE service_load ADD COLUMN hours_ahead double precision[]",
    ADD_BANDS.format(table="service_load_hour", number="int"),
    "ALTER TABLE service_load_hour ENABLE ROW LEVEL SECURITY",
    f"CREATE POLICY report_reader ON service_load_hour FOR SELECT USING ({FLEET} OR tenant = {TENANTS})",
    write_rights_of_readers(OF_PLANS, OF_LOADS, OF_BANDS, OF_HOURS),
    DEMAND.statement,
    ADMIT_READERS,
]
DOWN = [
    "DROP VIEW report.demand",
    DISMISS_READERS,
    write_rights_of_readers(OF_PLANS, OF_LOADS),
    ADMIT_READERS,
    "DROP POLICY report_reader ON service_load_hour",
    "ALTER TABLE service_load_hour DISABLE ROW LEVEL SECURITY",
    DROP_BANDS.format(table="service_load_hour"),
    DROP_BANDS.format(table="service_load"),
    "ALTER TABLE service_load DROP COLUMN hours_ahead",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
