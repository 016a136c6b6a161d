"""Tokens in and out and the pace of tokens, by minute, bucket and hour; reports of SLOs and costs have them."""

from __future__ import annotations

from alembic import op

from migrations.start.money import UP as MONEY
from migrations.start.report.cost import NANO
from migrations.start.report.services import SERVICE_VIEWS
from migrations.start.report.view import Column, View

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None
SERVES = "0008"

SLO = [
    Column("tpot_ms", "max(fact.tpot_ms)",
           "The promised time of each token after the first, in milliseconds; the latency is then that of the first."),
    Column("paced", "sum(fact.paced)", "Answers whose pace of tokens was compared with it."),
    Column("pace_in_time", "sum(fact.pace_in_time)", "Those of them that kept the pace."),
    Column("pace_attainment", "round(sum(fact.pace_in_time) / nullif(sum(fact.paced), 0), 6)",
           "The share of these that kept the pace; null without any."),
]  # fmt: skip
COSTS = [
    Column("tokens_in", "nullif(sum(tokens_in), 0)", "Tokens of prompts; null if no model server counts them."),
    Column("cost_per_million_tokens_in_and_out",
           f"round(sum(nano) * {NANO} * 1000000 / nullif(sum(tokens) + sum(tokens_in), 0), 9)",
           "Cost of a million tokens of prompts and answers together; null if they are not counted."),
]  # fmt: skip
KEEPS_PACE = " AND (sum(fact.paced) = 0 OR 100 * sum(fact.pace_in_time) >= max(fact.percentile) * sum(fact.paced))"


def _slo(view: View) -> View:
    columns = [
        Column(column.name, column.expression + KEEPS_PACE, "True if the SLO was met over the whole period; of a "
               "language model, both for first tokens and for the pace of the others.")
        if column.name == "is_attained" else column
        for column in view.columns
    ]  # fmt: skip
    return View(view.name, view.comment, [*columns, *SLO], view.source)


def _costs(view: View) -> View:
    source = view.source.replace("0 AS tokens,", "0 AS tokens, 0 AS tokens_in,", 1)
    source = source.replace("fact.tokens,", "fact.tokens, fact.tokens_in,", 1)
    return View(view.name, view.comment, [*view.columns, *COSTS], source)


BEFORE = [view for view in SERVICE_VIEWS if view.name.startswith(("slo", "cost_per_request"))]
AFTER = [_slo(view) if view.name.startswith("slo") else _costs(view) for view in BEFORE]
NAMES = ", ".join(f"report.{view.name}" for view in BEFORE)
COUNTS = ("tokens_in", "tokens_out", "paced", "pace_late")


def _added(table: str, kind: str) -> str:
    return f"ALTER TABLE {table} " + ", ".join(f"ADD {name} {kind} NOT NULL DEFAULT 0" for name in COUNTS)


def _dropped(table: str) -> str:
    return f"ALTER TABLE {table} " + ", ".join(f"DROP {name}" for name in COUNTS)


ASSIGNED_BEFORE = next(sql for sql in MONEY if "CREATE FUNCTION assigned_is_kept()" in sql).replace(
    "CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1
)
# Each GPU of an instance on several is assigned.
ASSIGNED_AFTER = r"""
    CREATE OR REPLACE FUNCTION assigned_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        without_nul text := regexp_replace(NEW.body, '(?<!\\)((\\\\)*)\\u0000', '\1', 'g');
        instances jsonb := coalesce(CAST(without_nul AS jsonb) -> 'instances', '[]');
    BEGIN
        INSERT INTO assigned AS known (node, instance, gpu, tenant, service, job, sm_percent, memory_gib, dedicated,
                                       first_at)
        SELECT NEW.node, id, place, max(coalesce(tenant, '')), max(coalesce(service, '')), max(coalesce(job, '')),
               max(coalesce("smPercent", 0)), max(coalesce("memoryGib", 0)), bool_or(coalesce(dedicated, false)),
               NEW.written_at
        FROM jsonb_to_recordset(instances) AS line (
            id text, gpu smallint, tenant text, service text, job text, "smPercent" double precision,
            "memoryGib" double precision, dedicated boolean, gpus smallint[])
        CROSS JOIN LATERAL unnest(CASE WHEN cardinality(gpus) > 1 THEN gpus ELSE ARRAY[gpu] END) AS place
        GROUP BY id, place
        ON CONFLICT (node, instance, gpu) DO UPDATE SET
            sm_percent = greatest(known.sm_percent, excluded.sm_percent),
            memory_gib = greatest(known.memory_gib, excluded.memory_gib),
            dedicated = known.dedicated OR excluded.dedicated, withdrawn_at = NULL
        WHERE known.withdrawn_at IS NOT NULL OR known.sm_percent < excluded.sm_percent
           OR known.memory_gib < excluded.memory_gib OR known.dedicated < excluded.dedicated;
        UPDATE assigned SET withdrawn_at = NEW.written_at
        WHERE node = NEW.node AND withdrawn_at IS NULL
          AND NOT instances @> jsonb_build_array(jsonb_build_object('id', instance, 'gpu', gpu))
          AND NOT instances @> jsonb_build_array(jsonb_build_object('id', instance, 'gpus', jsonb_build_array(gpu)));
        RETURN NULL;
    END $$
"""


UP = [
    ASSIGNED_AFTER,
    _added("instance_minute", "bigint"),
    _added("service_load", "bigint"),
    _added("service_load_hour", "double precision"),
    """
    ALTER TABLE service_hour ADD tokens_in bigint NOT NULL DEFAULT 0, ADD tpot_ms double precision,
        ADD paced bigint NOT NULL DEFAULT 0, ADD pace_in_time numeric NOT NULL DEFAULT 0
    """,
    # Replaced and not dropped, so that readers keep their rights.
    *(view.statement.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1) for view in AFTER),
]
DOWN = [
    ASSIGNED_BEFORE,
    f"DROP VIEW {NAMES}",
    "ALTER TABLE service_hour DROP tokens_in, DROP tpot_ms, DROP paced, DROP pace_in_time",
    *map(_dropped, ("service_load_hour", "service_load", "instance_minute")),
    *(view.statement for view in BEFORE),
    "DO $$ BEGIN PERFORM report.admit(rolname) FROM pg_roles WHERE rolname IN (SELECT role FROM report_reader); END $$",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
