"""Finds the counters of Ray Serve's replicas in Prometheus, by the names of application and deployment.

Ray writes these labels itself, so the scrape's job says whose they are: no other job's series count.
"""

from __future__ import annotations

from clusters.estate import Estate, WorkloadName
from clusters.metrics.asking import MetricsReader
from clusters.metrics.finding_servers import TellUnread
from clusters.metrics.server_metrics import MetricsOfWorkload, ServerMetrics

RAY = ServerMetrics(
    "ray", "ray_serve_deployment_request_counter_total", "ray_serve_deployment_processing_latency_ms", 1.0,
    waiting="ray_serve_request_router_fulfillment_time_ms",
)  # fmt: skip


def find_counters(
    job: str, estate: Estate, reader: MetricsReader, _: TellUnread | None = None
) -> dict[WorkloadName, MetricsOfWorkload]:
    """Returns the series of each deployment that has some; PrometheusFailed if there is no answer."""
    found = {
        (each.labels.get("application"), each.labels.get("deployment"))
        for each in reader.read_samples(
            f'count by (application,deployment) (last_over_time({RAY.requests}{{job="{job}"}}[{reader.span}]))'
        )
    }
    return {
        each.name: MetricsOfWorkload(RAY, _select(job, each.name), "replica")
        for each in estate.workloads
        if (each.name.namespace, each.name.name) in found
    }


def _select(job: str, name: WorkloadName) -> str:
    return f'{{job="{job}",application="{name.namespace}",deployment="{name.name}"}}'
