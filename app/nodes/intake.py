"""Stores reports in Postgres: all that wait in one transaction; each caller is answered once its report is stored."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from psycopg import errors as pg
from sqlalchemy import Connection

from agents.contract.reports import Dropped, Report, UsageInterval
from app.nodes import detail, metrics
from app.nodes.detail import StoredDetails
from app.problem import HttpProblem
from app.store.database.database import Database, Unavailable
from app.store.fleet import node_reports, node_state

LONGEST_BATCH = 100
GATHER_SECONDS = 0.003
MOST_WAITING = 2000  # reports; beyond it an agent would give up waiting
PAUSE_SECONDS = 2.0  # after a failure: callers are rejected at once instead of waiting for the next failure
RETRY_SECONDS = 5
LONGEST_USAGE = timedelta(days=400)
SEQUENCE_BITS = 31
NOT_ASSIGNED = "not_assigned"  # usage that is kept, but bills only the tenant that the instance was assigned for
ZIP_LEVEL = 1  # higher levels take three times as long and save a tenth

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StoredReport:
    """The result of storing a report."""

    now: datetime
    incarnation: int
    dropped: Sequence[Dropped] = ()


@dataclass(frozen=True, slots=True)
class WaitingReport:
    """A report, as sent and as decoded, and the future of its caller."""

    report: Report
    raw: bytes
    answer: asyncio.Future[StoredReport]


class Intake:
    """Writes in one thread; the event loop hands it reports and gets their results back."""

    def __init__(self, database: Database, retention: timedelta) -> None:
        self._database = database
        self._retention = retention
        self._waiting: deque[WaitingReport] = deque()
        self._news = threading.Event()
        self._stopping = False
        self._last = StoredDetails()
        self._closed_until = 0.0
        self._closed_reason = ""
        self._thread: threading.Thread | None = None
        self.stored_since: datetime | None = None  # database's time; None while reports cannot be stored

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stores the waiting reports, then stops."""
        self._stopping = True
        self._news.set()
        if self._thread is not None:
            self._thread.join(timeout=30)

    async def store(self, report: Report, raw: bytes) -> StoredReport:
        """Returns once the report is stored; 503 when it cannot be."""
        if self._stopping:
            raise turn_away("stopping")
        if time.monotonic() < self._closed_until:
            raise turn_away(self._closed_reason)
        if len(self._waiting) >= MOST_WAITING:
            raise turn_away("too_many")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[StoredReport] = loop.create_future()
        self._waiting.append(WaitingReport(report, raw, answer))
        self._news.set()
        return await answer

    def _run(self) -> None:
        while True:
            self._news.wait()
            while self._waiting:
                # A few milliseconds pay off: a batch costs ten times as much as one more report in it.
                if len(self._waiting) < LONGEST_BATCH and not self._stopping:
                    time.sleep(GATHER_SECONDS)
                self._news.clear()
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), LONGEST_BATCH))]
                self._write(batch)
            if self._stopping:
                return

    def _write(self, batch: Sequence[WaitingReport]) -> None:
        started = time.perf_counter()
        try:
            answers = self.keep([waiting.report for waiting in batch], [waiting.raw for waiting in batch])
        except Unavailable as error:
            self._close(error)
            _deliver(batch, [turn_away(self._closed_reason)] * len(batch))
        except Exception as error:
            if len(batch) > 1:  # a faulty report must not fail the others
                for waiting in batch:
                    self._write([waiting])
            else:
                log.exception("report_not_stored", extra={"node": batch[0].report.node})
                _deliver(batch, [error])
        else:
            metrics.REPORTS.inc(len(batch))
            metrics.BATCH.observe(len(batch))
            metrics.WRITE_SECONDS.observe(time.perf_counter() - started)
            _deliver(batch, answers)
        metrics.WAITING.set(len(self._waiting))

    def keep(self, batch: Sequence[Report], raws: Sequence[bytes]) -> list[StoredReport]:
        """Stores these reports now in one statement, as decoded and as sent. Raises Unavailable."""
        bodies = [_compressed(report, raw) for report, raw in zip(batch, raws, strict=True)]
        fingerprints = [detail.fingerprint(report) for report in batch]
        details = self._details(batch, fingerprints)
        answers = self._database.repeatable(lambda connection: self._store(connection, batch, bodies, details))
        for report, fingerprint in zip(batch, fingerprints, strict=True):
            self._last.remember(report.node, ordinal_of(report), fingerprint, time.monotonic())
        if self.stored_since is None:
            self.stored_since = answers[0].now
        return answers

    def _close(self, error: Unavailable) -> None:
        full = isinstance(getattr(error.__cause__, "orig", None), pg.DiskFull)
        self._closed_reason = "disk_full" if full else "database_away"
        self._closed_until = time.monotonic() + PAUSE_SECONDS
        self.stored_since = None
        log.error("reports_shed", extra={"reason": self._closed_reason, "error": str(error)})

    def _details(self, batch: Sequence[Report], fingerprints: Sequence[bytes]) -> list[node_reports.ReportedDetail]:
        """Returns the details of the reports whose detail has changed: the others need no write."""
        now = time.monotonic()
        return [
            node_reports.ReportedDetail(report.node, ordinal_of(report), msgspec.Raw(detail.encode(report)))
            for report, fingerprint in zip(batch, fingerprints, strict=True)
            if not self._last.is_known(report.node, ordinal_of(report), fingerprint, now)
        ]

    def _store(
        self,
        connection: Connection,
        batch: Sequence[Report],
        bodies: Sequence[bytes],
        details: Sequence[node_reports.ReportedDetail],
    ) -> list[StoredReport]:
        now, late, unassigned = node_reports.keep(
            connection,
            [_head(report) for report in batch],
            bodies,
            [_inventory(report) for report in batch if report.inventory is not None],
            details,
            [_interval(report.node, interval) for report in batch for interval in report.usage],
            self._retention,
            LONGEST_USAGE,
        )
        known = node_state.ordinals(connection, late) if late else {}
        return [self._stored(report, now, known, unassigned) for report in batch]

    def _stored(
        self, report: Report, now: datetime, known: Mapping[str, int], unassigned: Set[tuple[str, str]]
    ) -> StoredReport:
        """Returns the answer to a report: which parts were not stored, and why."""
        dropped = []
        ordinal = ordinal_of(report)
        newest = known.get(report.node, ordinal)
        if newest > ordinal:
            dropped.append(Dropped("state", "superseded", "a later report was stored first"))
        reason = _out_of_time(report.minute, now, self._retention)
        if reason and (report.gpus or report.instances):
            dropped.append(Dropped("telemetry", reason, f"minute {report.minute.isoformat()}"))
        for interval in report.usage:
            reason = _out_of_time(interval.ended_at or interval.started_at, now, LONGEST_USAGE)
            if reason:
                dropped.append(Dropped(f"usage {interval.id}", reason))
            elif (report.node, interval.id) in unassigned:
                dropped.append(Dropped(f"usage {interval.id}", NOT_ASSIGNED, _unassigned(interval)))
        return StoredReport(now, max(newest, ordinal) >> SEQUENCE_BITS, dropped)


def ordinal_of(report: Report) -> int:
    """Returns one number that orders the reports of a node across restarts of its agent."""
    return report.incarnation << SEQUENCE_BITS | report.sequence


def turn_away(reason: str) -> HttpProblem:
    """Rejects a report that cannot be stored now; the agent repeats its content later."""
    metrics.SHED.labels(reason).inc()
    return HttpProblem(
        "unavailable",
        f"reports cannot be stored right now ({reason}); send the next one later",
        headers={"Retry-After": str(RETRY_SECONDS)},
    )


def _out_of_time(moment: datetime, now: datetime, longest: timedelta) -> str:
    if moment > now + node_reports.AHEAD:
        return "future"
    return "too_old" if moment < now - longest else ""


def _unassigned(interval: UsageInterval) -> str:
    whose = interval.owner
    return f"instance {interval.instance} on GPU {interval.gpu} was never assigned to this node for {whose}"


def _compressed(report: Report, raw: bytes) -> bytes:
    return zlib.compress(raw, ZIP_LEVEL) if report.gpus or report.instances else b""


def _head(report: Report) -> node_reports.ReportedNode:
    return node_reports.ReportedNode(
        report.node,
        ordinal_of(report),
        report.at,
        report.boot_id,
        report.health,
        report.message,
        report.epoch,
        report.generation,
        report.assignment_version,
        report.minute,
    )


def _inventory(report: Report) -> node_reports.ReportedInventory:
    encoded = msgspec.json.encode(report.inventory)
    return node_reports.ReportedInventory(report.node, ordinal_of(report), msgspec.Raw(encoded))


def _interval(node: str, interval: UsageInterval) -> node_reports.Interval:
    return node_reports.Interval(
        interval.id,
        node,
        interval.instance,
        interval.gpu,
        interval.gpu_uuid,
        interval.tenant,
        interval.service,
        interval.job,
        interval.sm_percent,
        interval.memory_gib,
        interval.dedicated,
        interval.started_at,
        interval.ended_at,
        interval.evidence,
        interval.model,
    )


def _deliver(batch: Sequence[WaitingReport], answers: Sequence[StoredReport | Exception]) -> None:
    """Hands the results to the event loops that wait for them, with one wake-up per loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[StoredReport], StoredReport | Exception]]] = {}
    for waiting, answer in zip(batch, answers, strict=True):
        by_loop.setdefault(waiting.answer.get_loop(), []).append((waiting.answer, answer))
    for loop, pairs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, pairs)
        except RuntimeError:  # the loop was closed: its server stopped
            continue


def _resolve(pairs: Sequence[tuple[asyncio.Future[StoredReport], StoredReport | Exception]]) -> None:
    for future, answer in pairs:
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
