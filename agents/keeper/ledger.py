"""The journal as the threads of an agent share it: the newest of each copy, and what usage is still to be told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime

import msgspec

from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.journal import Journal

log = logging.getLogger(__name__)

NEWS = (Stage.ROUTING, Stage.READY, Stage.DRAINING, Stage.GONE)  # what those who route to it must know


class CopyLedger:
    """Whatever is asked or recorded here is whole: one caller at a time."""

    def __init__(self, journal: Journal, date: Callable[[], datetime]) -> None:
        self._journal = journal
        self._date = date
        self._lock = threading.Lock()
        self.news = threading.Event()  # a copy came, is on its way out, or went: worth a report before its time

    def copies(self) -> tuple[NodeCopy, ...]:
        """Every copy that is not gone."""
        with self._lock:
            return tuple(copy for copy in self._journal.copies.values() if copy.stage is not Stage.GONE)

    def accounts(self) -> tuple[NodeCopy, ...]:
        """Every copy of which the control plane has not acknowledged all usage, those gone included."""
        with self._lock:
            return tuple(self._journal.copies.values())

    def get(self, name: str) -> NodeCopy | None:
        with self._lock:
            return self._journal.copies.get(name)

    def record(self, copy: NodeCopy) -> None:
        """Have it on disk; only then may what its stage stands for be done. Its share is held from start to end."""
        if copy.running is not None and copy.started_at is None:
            copy = msgspec.structs.replace(copy, started_at=self._date())
        if copy.stage is Stage.GONE and copy.ended_at is None and copy.started_at is not None:
            copy = msgspec.structs.replace(copy, ended_at=self._date(), evidence="observed")
        with self._lock:
            known = self._journal.copies.get(copy.id)
            if known is not None and known.told != copy.told:
                copy = msgspec.structs.replace(copy, told=known.told)  # said meanwhile, by the reporter's thread
            self._journal.write(copy)
        if copy.stage in NEWS:
            self.news.set()
        log.info("%s is %s%s", copy.id, copy.stage, f": {copy.reason}" if copy.reason else "")

    def told(self, name: str, what: str) -> None:
        """The control plane has acknowledged that a copy's usage was opened, or closed."""
        with self._lock:
            copy = self._journal.copies.get(name)
            if copy is not None and copy.told != what:
                self._journal.write(msgspec.structs.replace(copy, told=what))

    def close(self) -> None:
        self._journal.close()
