"""Prometheus metrics of node reports and assignments."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from app.http.metrics import REGISTRY

REPORTS = Counter("gpuwright_reports", "Node reports stored.", registry=REGISTRY)
REFUSED = Counter(
    "gpuwright_reports_refused", "Node reports, or parts of them, that were not stored.", ["reason"], registry=REGISTRY
)
SHED = Counter(
    "gpuwright_reports_shed",
    "Node reports rejected because they could not be stored.",
    ["reason"],
    registry=REGISTRY,
)
COPIES_REFUSED = Counter(
    "gpuwright_copies_refused", "Reported copies that no gateway may send requests to.", registry=REGISTRY
)
BATCH = Histogram(
    "gpuwright_report_batch_size",
    "Reports stored in one transaction.",
    buckets=(1, 2, 5, 10, 20, 50, 100, 200),
    registry=REGISTRY,
)
WRITE_SECONDS = Histogram(
    "gpuwright_report_write_seconds",
    "Duration of such a transaction.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2, 10),
    registry=REGISTRY,
)
WAITING_AGENTS = Gauge(
    "gpuwright_waiting_agents", "Agents whose poll waits for the next assignment of their node.", registry=REGISTRY
)
WAITING = Gauge("gpuwright_reports_waiting", "Reports waiting to be stored.", registry=REGISTRY)
EXPANDED = Counter("gpuwright_report_minutes_expanded", "Minutes of nodes turned into rows.", registry=REGISTRY)
NODE_TOKEN_REUSE = Counter(
    "gpuwright_node_token_reuse",
    "Node tokens used again after their successor; they may have been copied",
    registry=REGISTRY,
)
HOUSEKEEPING_FAILED = Counter(
    "gpuwright_housekeeping_failed", "Housekeeping jobs that failed.", ["job"], registry=REGISTRY
)
QUARANTINED = Gauge(
    "gpuwright_ledger_quarantined_nodes",
    "Nodes whose usage cannot be accounted for at present.",
    registry=REGISTRY,
)
