"""Corrections between leaders: as rows, and back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from app.control.domain.snapshot import Correction
from app.control.observe.drift.correct import ProfileCorrection
from app.control.observe.drift.evidence import ShapeEvidence
from app.store.plans.corrections import CorrectionRow


class StoredEvidence(msgspec.Struct, rename="camel", omit_defaults=True):
    """What a correction rests on, as it is stored and shown."""

    stepped_at: datetime | None = None
    since: datetime | None = None
    profile: int = 0
    shapes: Mapping[str, ShapeEvidence] = {}
    late: float = 0.0
    late_at: datetime | None = None
    message: str = ""
    alarm: str = ""


def to_row(one: ProfileCorrection, now: datetime) -> CorrectionRow:
    """As it is stored."""
    model, variant, gpu_type = one.key.split("/")
    evidence = StoredEvidence(one.at, one.since, one.profile, one.shapes, one.late, one.late_at, one.message, one.alarm)
    factors = one.correction
    return CorrectionRow(
        model, variant, gpu_type, factors.latency_factor, factors.memory_factor, factors.power_factor,
        msgspec.to_builtins(evidence), now,
    )  # fmt: skip


def from_row(row: CorrectionRow) -> ProfileCorrection:
    """As it was when it was stored."""
    told = msgspec.convert(row.evidence, StoredEvidence)
    return ProfileCorrection(
        key=f"{row.model}/{row.variant}/{row.gpu_type}",
        correction=Correction(row.latency_factor, row.memory_factor, row.power_factor),
        at=told.stepped_at,
        since=told.since,
        profile=told.profile,
        shapes=told.shapes,
        late=told.late,
        late_at=told.late_at,
        message=told.message,
        alarm=told.alarm,
    )
