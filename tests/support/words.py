"""What nodes and gateways say of services, as planners hear it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from agents.contract.fields import LATENCY_EDGES_MS
from agents.contract.gateways import GatewayCounts, ServiceCounts
from app.control.observe.loads.reports import ReceivedReport, ReportBatch, ReportCursor, ReportExcerpt
from app.store.fleet.load_news import GatewayCounters
from tests.support.reports import instance, report

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def fast(count: int, latency_ms: float = 10.0) -> list[int]:
    """A histogram of answers that all took so long."""
    edge = next(number for number, upper in enumerate(LATENCY_EDGES_MS) if latency_ms <= upper)
    return [0] * edge + [count]


def received_report(node: str, seconds: float, *instances: dict[str, Any], **fields: Any) -> ReceivedReport:
    """A report that came so many seconds after noon; its node's clock is right."""
    moment = at(seconds)
    minute = fields.pop("minute", moment.replace(second=0, microsecond=0))
    known: dict[str, Any] = {"at": moment.isoformat(), "sequence": int(seconds * 10), "instances": list(instances)}
    said = report(node, minute=minute, **(known | fields))
    return ReceivedReport(moment, msgspec.convert(said, ReportExcerpt))


def served(requests: int, name: str = "i-1", latency_ms: float = 10.0, **fields: Any) -> dict[str, Any]:
    return instance(name, **({"requests": requests, "latencyCounts": fast(requests, latency_ms)} | fields))


def gateway(name: str, seconds: float, began: str = "a", **requests: int) -> GatewayCounters:
    """A gateway's totals so many seconds after noon, by service of the shop."""
    counts = tuple(ServiceCounts(f"shop/{one}", count, 0, 0, tuple(fast(count))) for one, count in requests.items())
    return GatewayCounters(name, at(seconds), GatewayCounts(began, int(seconds * 10), counts))


def readings(seconds: float, *said: ReceivedReport | GatewayCounters) -> ReportBatch:
    return ReportBatch(
        at(seconds),
        [one for one in said if isinstance(one, ReceivedReport)],
        [one for one in said if isinstance(one, GatewayCounters)],
        ReportCursor(),
    )
