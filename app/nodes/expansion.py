"""Expands finished minutes into rows, a few nodes at a time, so that other writers never wait long."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from agents.contract.reports import GpuMinute, InstanceMinute, Report
from app.nodes import metrics
from app.nodes.pace import WorkPace
from app.store.database import partitions
from app.store.database.database import Database, Unavailable
from app.store.fleet import telemetry
from app.store.fleet.telemetry import MinuteReport

NODES_AT_ONCE = 20
MOST_STRANGE = 64  # instances of a node's minute that were not assigned to it

log = logging.getLogger(__name__)

_DECODER = msgspec.json.Decoder(Report)


class Expanded(msgspec.Struct):
    """A minute of a node as telemetry.expand takes it."""

    minute: datetime
    node: str
    ordinal: int
    gpus: Sequence[GpuMinute]
    instances: Sequence[InstanceMinute]


def expand_finished(database: Database, pace: WorkPace) -> int:
    """Expands every minute that is over; returns how many minutes of nodes there were."""
    days = database.read(telemetry.days_due)
    if not days:
        return 0
    database.write(lambda connection: partitions.ensure(connection, days))
    total = 0
    for _ in pace.portions():
        try:
            count = database.write(lambda connection: _portion(connection, NODES_AT_ONCE))
        except Unavailable:
            raise
        except Exception:
            # One of them cannot be stored: found alone, it is given up, and the others are stored.
            log.exception("expansion_failed")
            count = _one_by_one(database)
        metrics.EXPANDED.inc(count)
        total += count
        if count < NODES_AT_ONCE:
            break
    return total


def _portion(connection: Connection, limit: int) -> int:
    reports = telemetry.lock_finished_reports(connection, limit)
    if reports:
        telemetry.expand(connection, _decode(connection, reports))
        telemetry.discard(connection, reports)
    return len(reports)


def _one_by_one(database: Database) -> int:
    for _ in range(NODES_AT_ONCE):
        try:
            if not database.write(lambda connection: _portion(connection, 1)):
                break
        except Unavailable:
            raise
        except Exception:
            lost = database.write(_give_up)
            metrics.REFUSED.labels("not_expandable").inc()
            log.exception("minute_lost", extra={"node": lost})
    return NODES_AT_ONCE


def _give_up(connection: Connection) -> str:
    reports = telemetry.lock_finished_reports(connection, 1)
    telemetry.discard(connection, reports)
    return reports[0].node if reports else ""


def _decode(connection: Connection, reports: Sequence[MinuteReport]) -> str:
    sent = [_DECODER.decode(zlib.decompress(report.body)) for report in reports]
    expanded = [
        Expanded(report.minute, report.node, report.ordinal, found.gpus, found.instances)
        for report, found in zip(reports, sent, strict=True)
    ]
    _leave_strange_out(connection, [minute for minute in expanded if len(minute.instances) > MOST_STRANGE])
    return msgspec.json.encode(expanded).decode()


def _leave_strange_out(connection: Connection, crowded: Sequence[Expanded]) -> None:
    """Bounds the instances that were not assigned to the node of their minute, because each would store a row."""
    if not crowded:
        return
    reported = {(minute.node, instance.id) for minute in crowded for instance in minute.instances}
    assigned = telemetry.find_assigned_lately(connection, reported)
    for minute in crowded:
        strange = [instance for instance in minute.instances if (minute.node, instance.id) not in assigned]
        refused = {instance.id for instance in strange[MOST_STRANGE:]}
        minute.instances = [instance for instance in minute.instances if instance.id not in refused]
        metrics.REFUSED.labels("strange_minutes").inc(len(refused))
