"""Stores changed corrections of profiles, as the leader."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from app.control.domain.events import Reason, event_of
from app.control.domain.leading import Deposed
from app.control.measure import metrics
from app.control.observe.drift import ProfileCorrection
from app.control.observe.drift.rows import to_row
from app.store.database import lease
from app.store.database.database import Database
from app.store.plans import corrections
from app.store.world import events


def record_corrections(database: Database, epoch: int, changed: Sequence[ProfileCorrection], now: datetime) -> bool:
    """Stores changed corrections and records alarms; returns True if a new plan is due, as a correction changed."""
    # The next cycle announces changed corrections together with their consequences; alarms are recorded at once.
    alarms = [
        event_of(
            Reason.PROFILE_WRONG,
            correction.alarm,
            kind="Profile",
            name=correction.key.replace("/", "-"),
            about=correction.key,
        )
        for correction in changed
        if correction.alarm
    ]

    def write(connection: Connection) -> None:
        if not lease.is_newest(connection, epoch):
            raise Deposed(f"epoch {epoch} is over")
        corrections.keep(connection, [to_row(correction, now) for correction in changed])
        events.record(connection, alarms)

    database.write(write)
    metrics.count_events(alarms)
    return any(correction.message for correction in changed)
