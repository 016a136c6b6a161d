"""What measuring said against profiles, put on record by who leads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from app.control.domain.events import Reason, happened
from app.control.domain.leading import Deposed
from app.control.measure import metrics
from app.control.observe.drift import Corrected
from app.control.observe.drift.kept import row_of
from app.store.database import lease
from app.store.database.database import Database
from app.store.plans import corrections
from app.store.world import events


def learnt(database: Database, epoch: int, changed: Sequence[Corrected], now: datetime) -> bool:
    """Keep what changed and say so. Whether a correction moved: then there is something to plan anew."""
    # That a correction moved is told with what follows from the next cycle; what is wrong beyond it, at once.
    said = [
        happened(Reason.PROFILE_WRONG, one.alarm, kind="Profile", name=one.key.replace("/", "-"), about=one.key)
        for one in changed
        if one.alarm
    ]

    def write(connection: Connection) -> None:
        if not lease.held(connection, epoch):
            raise Deposed(f"epoch {epoch} is over")
        corrections.keep(connection, [row_of(one, now) for one in changed])
        events.record(connection, said)

    database.write(write)
    metrics.happened(said)
    return any(one.message for one in changed)
