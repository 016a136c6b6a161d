"""Minutes of past days become a row an hour, whose columns are arrays: they take a tenth of the bytes."""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None
SERVES = "0008"


def _packed(table: str, key: str, *columns: str) -> tuple[str, ...]:
    """Every column is compressed within its row, however small the row: each repeats itself from minute to minute."""
    declared = ("minutes smallint[]", *columns)
    return (
        f"""
        CREATE TABLE {table} (
            hour timestamptz NOT NULL,
            node text COLLATE "C" NOT NULL,
            {key} NOT NULL,
            {", ".join(f"{column} NOT NULL" for column in declared)},
            PRIMARY KEY (node, hour, {key.split()[0]})
        ) WITH (toast_tuple_target = 128)
        """,
        f"CREATE INDEX {table}_hour ON {table} USING brin (hour)",
        f"ALTER TABLE {table} {', '.join(f'ALTER {one.split()[0]} SET STORAGE MAIN' for one in declared)}",
    )


UP = (
    *_packed(
        "gpu_hour_minutes", "gpu smallint",
        "health text[]", "utilization_percent double precision[]", "memory_used_gib double precision[]",
        "power_mean_w double precision[]", "power_peak_w double precision[]", "energy_counter_mj bigint[]",
        "temperature_c double precision[]", "sm_clock_mhz double precision[]", "throttle_reasons text[]",
        "reason text[]", "fenced boolean[]", "limits jsonb[]",
    ),
    *_packed(
        "instance_hour_minutes", 'instance text COLLATE "C"',
        "gpu smallint[]", "tenant text[]", "service text[]", "job text[]", "sm_percent double precision[]",
        "memory_gib double precision[]", "requests bigint[]", "errors bigint[]", "latency_counts text[]",
        "batch_mean double precision[]", "queue_mean double precision[]", "busy_seconds double precision[]",
        "limits jsonb[]", "source text[]", "steps double precision[]", "tokens_in bigint[]", "tokens_out bigint[]",
        "paced bigint[]", "pace_late bigint[]",
    ),
)  # fmt: skip


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    op.execute("DROP TABLE instance_hour_minutes, gpu_hour_minutes")
