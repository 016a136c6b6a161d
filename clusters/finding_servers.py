"""Finds whose counters tell of each workload: its own model servers', or Istio's."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from clusters.asking import MetricsReader
from clusters.estate import Estate, WorkloadName
from clusters.server_metrics import (
    ISTIO,
    MetricsOfWorkload,
    ServerMetrics,
    istio_selector,
    known_counters,
    pod_pattern,
    pods_selector,
)


def find_servers(estate: Estate, reader: MetricsReader) -> dict[WorkloadName, MetricsOfWorkload]:
    """Returns the series of each workload that has some; PrometheusFailed if there is no answer."""
    counters = dict(known_counters())
    names = "|".join(counters)
    labels = "__name__,namespace,pod,exported_namespace,exported_pod"
    query = f'count by ({labels}) (last_over_time({{__name__=~"{names}"}}[{reader.span}]))'
    patterns: dict[str, list[tuple[re.Pattern[str], WorkloadName]]] = defaultdict(list)
    for workload in estate.workloads:
        patterns[workload.name.namespace].append((re.compile(pod_pattern(workload.name)), workload.name))
    chosen: dict[WorkloadName, tuple[ServerMetrics, str]] = {}
    series: dict[tuple[WorkloadName, ServerMetrics, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for sample in reader.read_samples(query):
        metrics = counters.get(sample.labels.get("__name__", ""))
        for prefix in ("exported_", ""):
            pod, namespace = (sample.labels.get(f"{prefix}{label}", "") for label in ("pod", "namespace"))
            name = next((name for pattern, name in patterns[namespace] if pattern.fullmatch(pod)), None)
            if name and metrics:
                chosen[name] = metrics, prefix
                series[name, metrics, prefix][pod] += sample.value
                break
    found = {
        name: MetricsOfWorkload(
            metrics, pods_selector(name, prefix), f"{prefix}pod", max(series[name, metrics, prefix].values()) == 1
        )
        for name, (metrics, prefix) in chosen.items()
    }
    missing = [each.name for each in estate.workloads if each.is_scalable and each.name not in found]
    return found | (_find_istio(missing, reader) if missing else {})


def _find_istio(names: Iterable[WorkloadName], reader: MetricsReader) -> dict[WorkloadName, MetricsOfWorkload]:
    seen = reader.read_samples(
        "count by (destination_workload,destination_workload_namespace) "
        f'(last_over_time(istio_requests_total{{reporter="destination"}}[{reader.span}]))'
    )
    known = {
        (each.labels.get("destination_workload_namespace", ""), each.labels.get("destination_workload", ""))
        for each in seen
    }
    return {
        name: MetricsOfWorkload(ISTIO, istio_selector(name), "pod")
        for name in names
        if (name.namespace, name.name) in known
    }
