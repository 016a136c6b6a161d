"""Reads the reports that nodes and gateways have sent since the last read."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from agents.contract.fields import GpuIndex, Moment, Reason
from agents.contract.reports import Copy, Excursion, HeldBack, InstanceMinute
from app.store.fleet.load_news import GatewayCounters, LoadNews, NewsQuestion

OVERLAP = timedelta(seconds=3)  # by which a report may become visible after its own time

log = logging.getLogger(__name__)


class GpuExcerpt(msgspec.Struct, rename="camel", gc=False):
    """The part of a GPU's minute that shows whether its readings are meaningful."""

    index: GpuIndex
    health: Reason = "ok"
    power_mean_w: float = 0.0
    throttle_reasons: tuple[Reason, ...] = ()
    requested: dict[Reason, float] | None = None
    applied: dict[Reason, float] | None = None


class ReportExcerpt(msgspec.Struct, rename="camel", gc=False):
    """The part of a report that the planner learns from."""

    node: str
    incarnation: int
    sequence: int
    at: Moment  # the agent's clock, which may be wrong
    minute: Moment
    generation: int = 0
    gpus: tuple[GpuExcerpt, ...] = ()
    instances: tuple[InstanceMinute, ...] = ()
    copies: tuple[Copy, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    excursions: tuple[Excursion, ...] = ()

    @property
    def order(self) -> tuple[int, int]:
        return (self.incarnation, self.sequence)


@dataclass(frozen=True, slots=True)
class ReceivedReport:
    """A node's report, and when the database received it."""

    received_at: datetime
    report: ReportExcerpt


@dataclass(frozen=True, slots=True)
class ReportCursor:
    """The position up to which reports have been read."""

    reports_at: datetime | None = None
    known: Mapping[tuple[str, int], datetime] = field(default_factory=dict)  # reports within the overlap
    gateways_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ReportBatch:
    """The reports since the last read; those of a node are in order."""

    at: datetime
    reports: Sequence[ReceivedReport] = ()
    gateways: Sequence[GatewayCounters] = ()
    cursor: ReportCursor = field(default_factory=ReportCursor)
    unreadable: int = 0


_decoder = msgspec.json.Decoder(ReportExcerpt)


def ask_after(cursor: ReportCursor, assigned: int = 0) -> NewsQuestion:
    """Returns the question for everything after a cursor and a version of assignments."""
    return NewsQuestion(
        assigned,
        cursor.gateways_at.isoformat() if cursor.gateways_at else "-infinity",
        (cursor.reports_at - OVERLAP).isoformat() if cursor.reports_at else "-infinity",
        tuple(cursor.known),
    )


def open_news(news: LoadNews, after: ReportCursor) -> ReportBatch:
    """Returns the reports of what was asked after a cursor, and the next cursor."""
    rows = news.reports
    reports = []
    unreadable = 0
    for row in rows:
        try:
            reports.append(ReceivedReport(row.received_at, _decoder.decode(zlib.decompress(row.body))))
        except (msgspec.MsgspecError, zlib.error):
            unreadable += 1
            log.warning("report_unreadable", extra={"node": row.node})
    newest = max((row.received_at for row in rows), default=after.reports_at)
    received = {(row.node, row.ordinal): row.received_at for row in rows}
    known = {key: at for key, at in {**after.known, **received}.items() if newest and at > newest - OVERLAP}
    gateways_at = max((report.received_at for report in news.gateways), default=after.gateways_at)
    cursor = ReportCursor(newest, known, gateways_at)
    return ReportBatch(news.now, reports, news.gateways, cursor, unreadable)
