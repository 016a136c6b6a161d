"""What gateways and nodes have said since one last listened."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Connection

from agents.contract import Copy, Excursion, GpuIndex, HeldBack, InstanceMinute, Moment, Reason
from app.store.database import clock
from app.store.fleet import gateways, loads
from app.store.fleet.gateways import GatewayTold

OVERLAP = timedelta(seconds=3)  # that a report may show late after its own time

log = logging.getLogger(__name__)


class GpuExcerpt(msgspec.Struct, rename="camel", gc=False):
    """Of a GPU's minute, what tells whether its readings mean anything."""

    index: GpuIndex
    health: Reason = "ok"
    power_mean_w: float = 0.0
    throttle_reasons: tuple[Reason, ...] = ()


class ReportExcerpt(msgspec.Struct, rename="camel", gc=False):
    """Of a report, what is learnt from."""

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
    """A node's report, and when the database heard it."""

    received_at: datetime
    word: ReportExcerpt


@dataclass(frozen=True, slots=True)
class ReportCursor:
    """How far one has listened."""

    reports_at: datetime | None = None
    known: Mapping[tuple[str, int], datetime] = field(default_factory=dict)  # reports within the overlap
    gateways_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ReportBatch:
    """What was said since; reports of one node stand in their order."""

    at: datetime
    reports: Sequence[ReceivedReport] = ()
    gateways: Sequence[GatewayTold] = ()
    cursor: ReportCursor = field(default_factory=ReportCursor)
    unreadable: int = 0


_decoder = msgspec.json.Decoder(ReportExcerpt)


def read_reports(connection: Connection, after: ReportCursor) -> ReportBatch:
    """Everything said after a cursor, and the cursor to go on from."""
    rows = loads.heard(connection, after.reports_at - OVERLAP if after.reports_at else None, list(after.known))
    reports = []
    unreadable = 0
    for row in rows:
        try:
            reports.append(ReceivedReport(row.received_at, _decoder.decode(zlib.decompress(row.body))))
        except (msgspec.MsgspecError, zlib.error):
            unreadable += 1
            log.warning("report_unreadable", extra={"node": row.node})
    newest = max((row.received_at for row in rows), default=after.reports_at)
    came = {(row.node, row.ordinal): row.received_at for row in rows}
    known = {key: at for key, at in {**after.known, **came}.items() if newest and at > newest - OVERLAP}
    told = gateways.newest(connection, after.gateways_at)
    gateways_at = max((one.received_at for one in told), default=after.gateways_at)
    return ReportBatch(clock.now(connection), reports, told, ReportCursor(newest, known, gateways_at), unreadable)
