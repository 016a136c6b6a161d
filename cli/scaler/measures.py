"""Prometheus metrics of a scaler; their names and labels are part of the interface."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

from prometheus_client import Counter, Gauge
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from app.http.metrics import REGISTRY
from app.store.database.database import Database, Unavailable
from app.store.plans import scale_plans
from app.store.plans.scale_rows import ScaleState

DECIDED_WITHIN = timedelta(minutes=5)  # else the numbers are too old to be followed
LABELS = ("namespace", "kind", "name", "service")
WRITES = Counter(
    "gpuwright_scale_writes", "Writes of replicas, by what became of them.", ["outcome"], registry=REGISTRY
)
LOOKS_FAILED = Counter(
    "gpuwright_scale_looks_failed", "Times that nothing was decided, by what did not answer.", ["what"],
    registry=REGISTRY,
)  # fmt: skip
LOADS_UNREAD = Counter(
    "gpuwright_scale_loads_unread", "Loads of workloads that could not be read, each at each look.", registry=REGISTRY
)
LEADS = Gauge("gpuwright_scaler_leader", "1 if this process decides on replicas.", registry=REGISTRY)
DECIDED_AT = Gauge(
    "gpuwright_scale_decided_timestamp_seconds", "When this process last decided on replicas.", registry=REGISTRY
)
FAILED = Counter(
    "gpuwright_scaler_failed", "Tasks of a scaler that failed with an unexpected error.", ["task"], registry=REGISTRY
)
for _outcome in (*(ScaleState.WRITTEN, ScaleState.REFUSED, ScaleState.OVERTAKEN), "in doubt"):
    WRITES.labels(str(_outcome))
for _what in ("cluster", "ray", "prometheus", "database"):
    LOOKS_FAILED.labels(_what)

log = logging.getLogger(__name__)


class DesiredReplicas(Collector):
    """The gauge that HPAs, KEDA and AIBrix follow: read from Postgres when it is asked for, by every scaler.

    It has no value of a workload that is no longer adopted, and none at all while the newest decisions are old.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def collect(self) -> Iterator[GaugeMetricFamily]:
        text = "Replicas that a workload should have, by its load until now."
        family = GaugeMetricFamily("gpuwright_desired_replicas", text, labels=LABELS)
        try:
            plan = self._database.read(scale_plans.read_plan)
        except Unavailable as error:
            log.warning("no_desired_replicas", extra={"error": str(error)})
            plan = None
        if plan and plan.read_at - plan.confirmed_at <= DECIDED_WITHIN:
            for row in plan.rows:
                if row.wanted is not None and not row.is_blind:
                    family.add_metric((*row.target, row.service), row.wanted)
        yield family

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing is read when the collector is registered."""
        yield GaugeMetricFamily("gpuwright_desired_replicas", "", labels=LABELS)
