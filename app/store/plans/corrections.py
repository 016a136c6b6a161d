"""Corrections of profiles by measurements, with their evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from app.manifests.model import Fields
from app.store.database.database import read_row, statement


@dataclass(frozen=True, slots=True)
class CorrectionRow:
    """One profile's correction; `latency` and `evidence` are JSON."""

    model: str
    variant: str
    gpu_type: str
    latency_factor: float  # the highest
    latency: object  # factors by batch and SM%
    sensitivity_factor: float
    memory_factor: float
    power_factor: float
    evidence: Fields
    at: datetime


KEEP = statement(
    "keep_corrections",
    """
    INSERT INTO correction AS known (
        model, variant, gpu_type, latency_factor, latency, sensitivity_factor, memory_factor, power_factor, evidence,
        at)
    SELECT model, variant, gpu_type, latency_factor, latency, sensitivity_factor, memory_factor, power_factor,
           evidence, at
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row (
        model text, variant text, gpu_type text, latency_factor double precision, latency jsonb,
        sensitivity_factor double precision, memory_factor double precision, power_factor double precision,
        evidence jsonb, at timestamptz)
    ON CONFLICT (model, variant, gpu_type) DO UPDATE SET
        latency_factor = excluded.latency_factor, latency = excluded.latency,
        sensitivity_factor = excluded.sensitivity_factor, memory_factor = excluded.memory_factor,
        power_factor = excluded.power_factor, evidence = excluded.evidence, at = excluded.at
    """,
)
ALL = statement(
    "all_corrections",
    """
    SELECT model, variant, gpu_type, latency_factor, latency, sensitivity_factor, memory_factor, power_factor,
           evidence, at
    FROM correction ORDER BY model, variant, gpu_type
    """,
)
ONE = statement(
    "correction_of_profile",
    """
    SELECT model, variant, gpu_type, latency_factor, latency, sensitivity_factor, memory_factor, power_factor,
           evidence, at
    FROM correction WHERE model = :model AND variant = :variant AND gpu_type = :gpu_type
    """,
)


def keep(connection: Connection, rows: Sequence[CorrectionRow]) -> None:
    """Stores corrections; doing it twice equals doing it once."""
    if rows:
        connection.execute(KEEP, {"rows": msgspec.json.encode(rows).decode()})


def read_all(connection: Connection) -> list[CorrectionRow]:
    """Returns every correction."""
    return [CorrectionRow(*row) for row in connection.execute(ALL)]


def read_one(connection: Connection, model: str, variant: str, gpu_type: str) -> CorrectionRow | None:
    """Returns the correction of a profile; None where nothing was measured."""
    return read_row(CorrectionRow, connection.execute(ONE, {"model": model, "variant": variant, "gpu_type": gpu_type}))
