"""What measuring said against profiles, put on record by who leads."""

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
    """Keep what changed and say so. Whether a correction moved: then there is something to plan anew."""
    # That a correction moved is told with what follows from the next cycle; what is wrong beyond it, at once.
    said = [
        event_of(Reason.PROFILE_WRONG, one.alarm, kind="Profile", name=one.key.replace("/", "-"), about=one.key)
        for one in changed
        if one.alarm
    ]

    def write(connection: Connection) -> None:
        if not lease.held(connection, epoch):
            raise Deposed(f"epoch {epoch} is over")
        corrections.keep(connection, [to_row(one, now) for one in changed])
        events.record(connection, said)

    database.write(write)
    metrics.count_events(said)
    return any(one.message for one in changed)
