"""Translates corrections to database rows and back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from app.control.domain.snapshot import Correction
from app.control.observe.drift.correct import ProfileCorrection
from app.control.observe.drift.evidence import ShapeEvidence
from app.store.plans.corrections import CorrectionRow


class StoredEvidence(msgspec.Struct, rename="camel", omit_defaults=True):
    """The evidence of a correction, as it is stored and shown."""

    stepped_at: datetime | None = None
    since: datetime | None = None
    profile: int = 0
    shapes: Mapping[str, ShapeEvidence] = {}
    late: float = 0.0
    late_at: datetime | None = None
    message: str = ""
    alarm: str = ""


def to_row(correction: ProfileCorrection, now: datetime) -> CorrectionRow:
    """Returns the row that stores a correction."""
    model, variant, gpu_type = correction.key.split("/")
    evidence = StoredEvidence(
        correction.at,
        correction.since,
        correction.profile,
        correction.shapes,
        correction.late,
        correction.late_at,
        correction.message,
        correction.alarm,
    )
    factors = correction.correction
    return CorrectionRow(
        model, variant, gpu_type, factors.latency_factor, factors.memory_factor, factors.power_factor,
        msgspec.to_builtins(evidence), now,
    )  # fmt: skip


def from_row(row: CorrectionRow) -> ProfileCorrection:
    """Returns the correction that a row stores."""
    evidence = msgspec.convert(row.evidence, StoredEvidence)
    return ProfileCorrection(
        key=f"{row.model}/{row.variant}/{row.gpu_type}",
        correction=Correction(row.latency_factor, row.memory_factor, row.power_factor),
        at=evidence.stepped_at,
        since=evidence.since,
        profile=evidence.profile,
        shapes=evidence.shapes,
        late=evidence.late,
        late_at=evidence.late_at,
        message=evidence.message,
        alarm=evidence.alarm,
    )
