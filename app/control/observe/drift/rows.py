"""Translates corrections to database rows and back."""

from __future__ import annotations

from datetime import datetime

import msgspec

from app.control.domain.snapshot import Correction, LatencyFactor
from app.control.observe.drift.correct import ProfileCorrection
from app.store.plans.corrections import CorrectionRow
from solvers.learning.region import Region


class StoredEvidence(msgspec.Struct, rename="camel", omit_defaults=True):
    """The filters of a correction, as they are stored."""

    at: datetime | None = msgspec.field(default=None, name="steppedAt")
    since: datetime | None = None
    profile: int = 0
    regions: tuple[Region, ...] = ()
    late: float = 0.0
    late_at: datetime | None = None
    message: str = ""
    alarm: str = ""


def write_correction(correction: ProfileCorrection, now: datetime) -> CorrectionRow:
    """Returns the row that stores a correction."""
    model, variant, gpu_type = correction.key.split("/")
    evidence = StoredEvidence(**{name: getattr(correction, name) for name in StoredEvidence.__struct_fields__})
    factors = correction.correction
    return CorrectionRow(
        model=model,
        variant=variant,
        gpu_type=gpu_type,
        latency_factor=max((point.factor for point in factors.latency), default=1.0),
        latency=msgspec.to_builtins(factors.latency),
        sensitivity_factor=factors.sensitivity_factor,
        memory_factor=factors.memory_factor,
        power_factor=factors.power_factor,
        evidence=msgspec.to_builtins(evidence),
        at=now,
    )


def read_correction(row: CorrectionRow) -> ProfileCorrection:
    """Returns the correction that a row stores."""
    evidence = msgspec.convert(row.evidence, StoredEvidence)
    latency = msgspec.convert(row.latency, tuple[LatencyFactor, ...])
    return ProfileCorrection(
        key=f"{row.model}/{row.variant}/{row.gpu_type}",
        correction=Correction(latency, row.sensitivity_factor, row.memory_factor, row.power_factor),
        **msgspec.structs.asdict(evidence),
    )
