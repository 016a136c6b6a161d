"""Takes notices of reclaim from reports: nodes learn from their cloud that it takes them back, and say so."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection

from agents.contract.fields import LONGEST_NOTICE_SECONDS
from agents.contract.reports import Report
from app.access import Principal, Scope
from app.manifests.model import Key, Kind
from app.store.database.database import Database, Unavailable
from app.store.fleet import reclaims
from app.store.world import objects
from app.world import notices
from app.world.write import Actor

REFRESH_SECONDS = 5.0  # after which another server's notices are read
FURTHEST = timedelta(seconds=LONGEST_NOTICE_SECONDS)

log = logging.getLogger(__name__)


class ReportedNotices:
    """Stores what has changed of the notices that nodes report; nearly always nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, datetime] = {}
        self._read_at = float("-inf")

    def take(self, reports: Sequence[Report], now: datetime) -> None:
        """Gives and withdraws notices as these reports say; one that cannot be stored is tried with the next report."""
        try:
            self._refresh()
            for report in reports:
                if report.reclaim_at != self._known.get(report.node):
                    self._store(report.node, report.reclaim_at, now)
        except Unavailable as error:
            log.warning("notice_not_stored", extra={"error": str(error)})
        except Exception:  # the reports themselves are stored
            log.exception("notice_not_stored")

    def _refresh(self) -> None:
        if time.monotonic() - self._read_at > REFRESH_SECONDS:
            self._known = self._database.read(reclaims.read_reported)
            self._read_at = time.monotonic()

    def _store(self, node: str, deadline: datetime | None, now: datetime) -> None:
        actor = Actor(Principal(f"node/{node}", Scope.NODE, node=node), "report")
        if deadline is None:
            self._database.write(lambda connection: notices.forget_reported_notice(connection, actor, node))
            self._known.pop(node, None)
            return
        if deadline - now > FURTHEST:
            log.warning("notice_too_far", extra={"node": node, "deadline": deadline.isoformat()})
            return

        def write(connection: Connection) -> None:
            if objects.get(connection, Key(Kind.NODE, "", node)) is not None:
                notices.give_notice(connection, actor, node, "node", deadline)

        self._database.write(write)
        self._known[node] = deadline
