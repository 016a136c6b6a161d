"""What a node's GPUs reported by steps of time: load, memory, power, heat, clocks, and minutes in which one ailed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from app.store.database.database import statement
from app.store.money.packed_minutes import GPUS


@dataclass(frozen=True, slots=True)
class GpuPoint:
    """A GPU over a step of time: means, and the highest temperature."""

    begins: datetime
    gpu: int
    busy: float  # a share of 1
    memory_gib: float
    power_w: float
    temperature_c: float
    clock_mhz: float


@dataclass(frozen=True, slots=True)
class AilingPoint:
    """The minutes of a step in which GPUs were unhealthy, fenced or throttled for a reason, one for each GPU."""

    begins: datetime
    reason: str
    minutes: int


_BEGINS = "date_bin(CAST(:step AS interval), minute, '1970-01-01Z') AS begins"
_SINCE, _UNTIL = "CAST(:since AS timestamptz)", "CAST(:until AS timestamptz)"
_MEASURED = ("utilization_percent", "memory_used_gib", "power_mean_w", "temperature_c", "sm_clock_mhz")
MEASURED = statement(
    "measured_points_of_gpus",
    f"""
    SELECT {_BEGINS}, gpu, avg(utilization_percent) / 100, avg(memory_used_gib), avg(power_mean_w), max(temperature_c),
           avg(sm_clock_mhz)
    FROM ({GPUS.select_minutes(_SINCE, _UNTIL, *_MEASURED)}) AS line GROUP BY begins, gpu ORDER BY begins, gpu
    """,
)
AILING = statement(
    "ailing_points_of_gpus",
    f"""
    SELECT {_BEGINS}, word, count(*)
    FROM ({GPUS.select_minutes(_SINCE, _UNTIL, "health", "reason", "fenced", "throttle_reasons")}) AS line,
         unnest(throttle_reasons || CASE WHEN fenced OR health NOT IN ('ok', 'unknown')
             THEN ARRAY[coalesce(nullif(reason, ''), CASE WHEN fenced THEN 'fenced' ELSE health END)]
             ELSE CAST('{{}}' AS text[]) END) AS word
    GROUP BY begins, word ORDER BY begins, word
    """,
)


def read_gpu_points(
    connection: Connection, node: str, since: datetime, until: datetime, step: timedelta
) -> list[GpuPoint]:  # fmt: skip
    """Returns a point for each GPU and step of which minutes are kept, the oldest first."""
    values = {"node": node, "since": since, "until": until, "step": step}
    return [GpuPoint(*row) for row in connection.execute(MEASURED, values)]


def read_ailing_points(
    connection: Connection, node: str, since: datetime, until: datetime, step: timedelta
) -> list[AilingPoint]:  # fmt: skip
    """Returns the minutes of each step and reason, the oldest first."""
    values = {"node": node, "since": since, "until": until, "step": step}
    return [AilingPoint(*row) for row in connection.execute(AILING, values)]
