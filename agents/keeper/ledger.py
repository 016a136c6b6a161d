"""Shares the journal between the agent's threads: the newest state of each copy, and usage not yet acknowledged."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime

import msgspec

from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.journal import Journal
from agents.keeper.room import HOLD_NOTHING

log = logging.getLogger(__name__)

# Stages that gateways, or the control plane, must learn of at once.
NEWS = (Stage.ROUTING, Stage.READY, Stage.SWAPPED, Stage.RETURNING, Stage.DRAINING, Stage.GONE)


class CopyLedger:
    """Reads and records under a lock, one caller at a time."""

    def __init__(self, journal: Journal, date: Callable[[], datetime]) -> None:
        self._journal = journal
        self._date = date
        self._lock = threading.Lock()
        self.news = threading.Event()  # a copy has come, progressed, is leaving, or has gone: report early

    def copies(self) -> tuple[NodeCopy, ...]:
        """Returns every copy that is not gone."""
        with self._lock:
            return tuple(copy for copy in self._journal.copies.values() if copy.stage is not Stage.GONE)

    def accounts(self) -> tuple[NodeCopy, ...]:
        """Returns every copy whose usage the control plane has not fully acknowledged, gone copies included."""
        with self._lock:
            return tuple(self._journal.copies.values())

    def get(self, name: str) -> NodeCopy | None:
        with self._lock:
            return self._journal.copies.get(name)

    def record(self, copy: NodeCopy) -> None:
        """Writes the copy to disk; only then may its stage's action be taken. Its usage runs from start to end."""
        with self._lock:
            known = self._journal.copies.get(copy.id)
            if known is not None:  # the reporting thread may have acknowledged usage meanwhile
                copy = msgspec.structs.replace(copy, acknowledged=known.acknowledged, earlier=known.earlier)
            self._journal.write(self._note_usage(copy))
        if copy.stage in NEWS:
            self.news.set()
        log.info("%s is %s%s", copy.id, copy.stage, f": {copy.reason}" if copy.reason else "")

    def acknowledge(self, name: str, spell: int, what: str) -> None:
        """Records that the control plane has acknowledged a copy's usage of one spell as opened or closed."""
        with self._lock:
            copy = self._journal.copies.get(name)
            after = copy.acknowledge(spell, what) if copy else None
            if after is not None and after != copy:
                self._journal.write(after)

    def _note_usage(self, copy: NodeCopy) -> NodeCopy:
        """Returns the copy with the times between which it holds its share."""
        if copy.running is not None and copy.started_at is None:
            copy = msgspec.structs.replace(copy, started_at=self._date())
        if copy.stage is Stage.RETURNING and copy.ended_at is not None:
            return copy.begin_spell(self._date())
        if copy.stage in HOLD_NOTHING and copy.ended_at is None and copy.started_at is not None:
            # A clock that was set back meanwhile must not end the usage before it began.
            ended_at = max(self._date(), copy.started_at)
            copy = msgspec.structs.replace(copy, ended_at=ended_at, evidence="observed")
        return copy

    def close(self) -> None:
        self._journal.close()
