"""Minutes that are kept: of the whole fleet, one row each; of past days, a row an hour, whose columns are arrays.

Arrays take a tenth of the bytes.
"""

from __future__ import annotations


def _pack(table: str, key: str, *columns: str) -> tuple[str, ...]:
    """Returns the statements for a table of arrays.

    Every column is compressed within its row, however small the row: each repeats itself from minute to minute.
    """
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
        f"ALTER TABLE {table} {', '.join(f'ALTER {column.split()[0]} SET STORAGE MAIN' for column in declared)}",
    )


UP = [
    # Costs are per hour, of the last cycle in the minute; GPUs are those that reported it, as whole minutes come in;
    # answers are those of buckets that ended in it. Null is unknown.
    """
    CREATE TABLE fleet_minute (
        minute timestamptz PRIMARY KEY,
        held_cost double precision,
        planned_cost double precision,
        bound double precision,
        gpus int,
        busy_gpus double precision,
        power_w double precision,
        answers double precision,
        errors double precision,
        slow double precision
    ) WITH (fillfactor = 50)
    """,
    *_pack(
        "gpu_hour_minutes", "gpu smallint",
        "health text[]", "utilization_percent double precision[]", "memory_used_gib double precision[]",
        "power_mean_w double precision[]", "power_peak_w double precision[]", "energy_counter_mj bigint[]",
        "temperature_c double precision[]", "sm_clock_mhz double precision[]", "throttle_reasons text[]",
        "reason text[]", "fenced boolean[]", "limits jsonb[]",
    ),
    *_pack(
        "instance_hour_minutes", 'instance text COLLATE "C"',
        "gpu smallint[]", "tenant text[]", "service text[]", "job text[]", "sm_percent double precision[]",
        "memory_gib double precision[]", "requests bigint[]", "errors bigint[]", "latency_counts text[]",
        "batch_mean double precision[]", "queue_mean double precision[]", "busy_seconds double precision[]",
        "limits jsonb[]", "source text[]", "steps double precision[]", "tokens_in bigint[]", "tokens_out bigint[]",
        "paced bigint[]", "pace_late bigint[]",
    ),
]  # fmt: skip

DOWN = ["DROP TABLE instance_hour_minutes, gpu_hour_minutes, fleet_minute"]
