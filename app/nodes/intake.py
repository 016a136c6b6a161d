"""Stores reports in Postgres: all that wait in one transaction; each caller is answered once its report is stored."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from psycopg import errors as pg
from sqlalchemy import Connection

from agents.contract.reports import SEQUENCE_BITS, Dropped, Report, UsageInterval
from app.nodes import detail, metrics
from app.nodes.admission import AHEAD, Admission, Refused
from app.nodes.detail import StoredDetails
from app.nodes.reported_notices import ReportedNotices
from app.nodes.usage_bounds import BOUNDS, NOT_ASSIGNED, UsageBounds
from app.problem import HttpProblem
from app.store.database.database import Database, Unavailable
from app.store.fleet import node_reports, node_state
from app.store.fleet.node_reports import KeptReports

LONGEST_BATCH = 100
ZIP_LEVEL = 1  # higher levels take three times as long and save a tenth
GATHER_SECONDS = 0.003, 0.025  # at least, at most
GATHER_FACTOR = 4  # times what the last batch took to write: up to 6 ms a batch, writing fills a fifth of the time
MOST_WAITING = 2000  # reports; beyond it an agent would give up waiting
PAUSE_SECONDS = 2.0  # after a failure: callers are rejected at once instead of waiting for the next failure
RETRY_SECONDS = 5
LONGEST_USAGE = timedelta(days=400)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StoredReport:
    """The result of storing a report."""

    now: datetime
    incarnation: int
    dropped: Sequence[Dropped] = ()
    is_ahead: bool = False  # its state was not stored: its incarnation is later than the database's clock
    endpoints: int = 0  # the version of the endpoints that has its copies

    @property
    def is_newest(self) -> bool:
        """True if the state in the report is the node's present one."""
        return not any(part.what == "state" for part in self.dropped)


@dataclass(frozen=True, slots=True)
class WaitingReport:
    """A report, as sent and as decoded, and the future of its caller."""

    report: Report
    raw: bytes
    answer: asyncio.Future[StoredReport]


class Intake:
    """Writes in one thread; the event loop hands it reports and gets their results back."""

    def __init__(self, database: Database, retention: timedelta, bounds: UsageBounds = BOUNDS) -> None:
        self._database = database
        self._retention = retention
        self._waiting: deque[WaitingReport] = deque()
        self._news = threading.Event()
        self._stopping = False
        self._last = StoredDetails()
        self._admission = Admission(bounds)
        self._notices = ReportedNotices(database)
        self._write_seconds = 0.0  # of the last batch
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
        seconds, longest = GATHER_SECONDS
        while True:
            self._news.wait()
            while self._waiting:
                # Waiting for more reports pays off: a batch costs ten times as much as one more report in it.
                if len(self._waiting) < LONGEST_BATCH and not self._stopping:
                    time.sleep(min(longest, max(seconds, GATHER_FACTOR * self._write_seconds)))
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
        self._write_seconds = time.perf_counter() - started
        metrics.WAITING.set(len(self._waiting))

    def keep(self, batch: Sequence[Report], raws: Sequence[bytes]) -> list[StoredReport]:
        """Stores these reports now in one statement, as decoded and as sent. Raises Unavailable."""
        bodies = [
            zlib.compress(raw, ZIP_LEVEL) if report.gpus or report.instances else b""
            for report, raw in zip(batch, raws, strict=True)
        ]
        fingerprints = [detail.fingerprint(report) for report in batch]
        details = self._details(batch, fingerprints)
        paced = self._admission.pace(batch)
        answers = self._database.repeatable(lambda connection: self._store(connection, batch, bodies, details, paced))
        for report, fingerprint, stored in zip(batch, fingerprints, answers, strict=True):
            if not stored.is_ahead:
                self._last.remember(report.node, report.ordinal, fingerprint, time.monotonic())
        if self.stored_since is None:
            self.stored_since = answers[0].now
        newest = [report for report, stored in zip(batch, answers, strict=True) if stored.is_newest]
        self._notices.take(newest, answers[0].now)
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
            node_reports.ReportedDetail(report.node, report.ordinal, msgspec.Raw(detail.encode(report)))
            for report, fingerprint in zip(batch, fingerprints, strict=True)
            if not self._last.is_known(report.node, report.ordinal, fingerprint, now)
        ]

    def _store(
        self,
        connection: Connection,
        batch: Sequence[Report],
        bodies: Sequence[bytes],
        details: Sequence[node_reports.ReportedDetail],
        paced: Refused,
    ) -> list[StoredReport]:
        admitted = self._admission.admit(connection, batch, paced)
        heads = [(report, body) for report, body, ahead in zip(batch, bodies, admitted.ahead, strict=True) if not ahead]
        credible = {(report.node, report.ordinal) for report, _ in heads}
        kept = node_reports.keep(
            connection,
            [msgspec.convert(report, node_reports.ReportedNode, from_attributes=True) for report, _ in heads],
            [body for _, body in heads],
            [
                node_reports.ReportedInventory(
                    report.node, report.ordinal, msgspec.Raw(msgspec.json.encode(report.inventory))
                )
                for report, _ in heads
                if report.inventory is not None
            ],
            [found for found in details if (found.node, found.ordinal) in credible],
            [
                node_reports.Interval(node=report.node, **msgspec.structs.asdict(interval))
                for report in batch
                for interval in report.usage
                if (report.node, interval.id) not in admitted.refused
            ],
            self._retention,
            LONGEST_USAGE,
        )
        nodes = kept.late | {report.node for report, ahead in zip(batch, admitted.ahead, strict=True) if ahead}
        known = node_state.ordinals(connection, nodes) if nodes else {}
        return [
            _tell_stored(report, ahead, kept, self._retention, known, admitted.refused)
            for report, ahead in zip(batch, admitted.ahead, strict=True)
        ]


def _tell_stored(
    report: Report, ahead: bool, kept: KeptReports, retention: timedelta, known: Mapping[str, int], refused: Refused
) -> StoredReport:
    """Returns the answer to a report: which parts were not stored, and why."""
    dropped = []
    ordinal = 0 if ahead else report.ordinal
    newest = known.get(report.node, ordinal)
    if ahead:
        dropped.append(Dropped("state", AHEAD, f"incarnation {report.incarnation} is later than this server's clock"))
    elif newest > ordinal:
        dropped.append(Dropped("state", "superseded", "a later report was stored first"))
    reason = _out_of_time(report.minute, kept.now, retention)
    if reason and (report.gpus or report.instances):
        dropped.append(Dropped("telemetry", reason, f"minute {report.minute.isoformat()}"))
    for interval in report.usage:
        reason = _out_of_time(interval.ended_at or interval.started_at, kept.now, LONGEST_USAGE)
        if reason:
            dropped.append(Dropped(f"usage {interval.id}", reason))
        elif (report.node, interval.id) in refused:
            dropped.append(refused[report.node, interval.id])
        elif (report.node, interval.id) in kept.unassigned:
            dropped.append(Dropped(f"usage {interval.id}", NOT_ASSIGNED, _explain_unassigned(interval)))
    return StoredReport(kept.now, max(newest, ordinal) >> SEQUENCE_BITS, dropped, ahead, kept.endpoints)


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


def _explain_unassigned(interval: UsageInterval) -> str:
    whose = interval.owner
    return f"instance {interval.instance} on GPU {interval.gpu} was never assigned to this node for {whose}"


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
