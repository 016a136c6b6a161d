"""Turns a report into rows of the store."""

from __future__ import annotations

import zlib

import msgspec

from agents.contract.reports import Report, UsageInterval
from app.store.fleet import node_reports

SEQUENCE_BITS = 31
ZIP_LEVEL = 1  # higher levels take three times as long and save a tenth


def ordinal_of(report: Report) -> int:
    """Returns one number that orders the reports of a node across restarts of its agent."""
    return report.incarnation << SEQUENCE_BITS | report.sequence


def compress_report(report: Report, raw: bytes) -> bytes:
    return zlib.compress(raw, ZIP_LEVEL) if report.gpus or report.instances else b""


def head_of(report: Report) -> node_reports.ReportedNode:
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


def inventory_of(report: Report) -> node_reports.ReportedInventory:
    encoded = msgspec.json.encode(report.inventory)
    return node_reports.ReportedInventory(report.node, ordinal_of(report), msgspec.Raw(encoded))


def interval_of(node: str, interval: UsageInterval) -> node_reports.Interval:
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
