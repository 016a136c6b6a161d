"""Takes notices from reports: a node learns that its cloud takes it back, or its cluster drains it, and says so."""

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
from app.store.fleet.reclaims import NodeNotice
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
        self._known: dict[str, NodeNotice] = {}
        self._read_at = float("-inf")

    def take(self, reports: Sequence[Report], now: datetime) -> None:
        """Gives and withdraws notices as these reports say; one that cannot be stored is tried with the next report."""
        try:
            self._refresh()
            for report in reports:
                said = NodeNotice(report.reclaim_at) if report.reclaim_at or report.drained else None
                if said != self._known.get(report.node):
                    self._store(report.node, said, now)
        except Unavailable as error:
            log.warning("notice_not_stored", extra={"error": str(error)})
        except Exception:  # the reports themselves are stored
            log.exception("notice_not_stored")

    def _refresh(self) -> None:
        if time.monotonic() - self._read_at > REFRESH_SECONDS:
            self._known = self._database.read(reclaims.read_reported)
            self._read_at = time.monotonic()

    def _store(self, node: str, said: NodeNotice | None, now: datetime) -> None:
        actor = Actor(Principal(f"node/{node}", Scope.NODE, node=node), "report")
        if said is None:
            self._database.write(lambda connection: notices.forget_reported_notice(connection, actor, node))
            self._known.pop(node, None)
            return
        deadline = said.deadline
        if deadline is not None and deadline - now > FURTHEST:
            log.warning("notice_too_far", extra={"node": node, "deadline": deadline.isoformat()})
            return

        def write(connection: Connection) -> None:
            if objects.get(connection, Key(Kind.NODE, "", node)) is not None:
                notices.give_notice(connection, actor, node, "node", deadline)

        self._database.write(write)
        self._known[node] = said
