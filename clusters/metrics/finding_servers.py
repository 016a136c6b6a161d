"""Finds whose counters tell of each workload: its own model servers', or Istio's.

A scraped pod writes any label that it likes. Prometheus sets `namespace` and `pod` itself, and renames those that the
pod wrote to `exported_namespace` and `exported_pod`, so the first two say whose counters these are. With `honor_labels`
of a scrape job the pod's own stay, which is for a scraper that its owner trusts, as a federation. Where only renamed
labels name a workload, they count in what people read, with a sentence, and never in what changes replicas.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from clusters.estate import Estate, UnknownFigure, WorkloadName
from clusters.metrics.asking import MetricsReader
from clusters.metrics.prometheus import MetricSample, PrometheusFailed
from clusters.metrics.renamed_labels import RENAMED
from clusters.metrics.server_metrics import (
    ISTIO,
    SERVERS,
    MetricsOfWorkload,
    istio_selector,
    pod_pattern,
    pods_selector,
)

LABELS = ("namespace", "pod")

TellUnread: TypeAlias = Callable[[WorkloadName, PrometheusFailed], None]
FindServers: TypeAlias = Callable[[Estate, MetricsReader, TellUnread], dict[WorkloadName, MetricsOfWorkload]]


def find_servers(
    estate: Estate, reader: MetricsReader, tell: TellUnread | None = None
) -> dict[WorkloadName, MetricsOfWorkload]:
    """Returns the series of each workload that has some; PrometheusFailed if there is no answer.

    With `tell`, Istio's counters may have no answer: then it gets the workloads that need them. Of a workload with
    several kinds of counters, the kind that stands first in SERVERS counts.
    """
    names = "|".join(metrics.requests for metrics in SERVERS)
    labels = ",".join(("__name__", *LABELS, *(RENAMED + label for label in LABELS)))
    samples = reader.read_samples(f'count by ({labels}) (last_over_time({{__name__=~"{names}"}}[{reader.span}]))')
    found = _find_own(estate, samples, "")
    missing = [each.name for each in estate.workloads if each.is_scalable and each.name not in found]
    if missing:
        try:
            found |= _find_istio(missing, reader)
        except PrometheusFailed as failed:
            if tell is None:
                raise
            for name in missing:
                tell(name, failed)
    return {**_find_own(estate, samples, RENAMED), **found}


def name_renamed(servers: Mapping[WorkloadName, MetricsOfWorkload]) -> list[UnknownFigure]:
    """Returns a sentence for each workload whose counters are its own only by labels that any pod can write."""
    return [
        UnknownFigure(
            f"workload {name}",
            "its counters name it by exported_namespace and exported_pod alone, which any scraped pod can write",
            "set honor_labels in the scrape job, if you trust who writes them; until then no replicas follow them",
        )
        for name, series in servers.items()
        if series.is_renamed
    ]


def _find_own(estate: Estate, samples: Iterable[MetricSample], prefix: str) -> dict[WorkloadName, MetricsOfWorkload]:
    patterns: dict[str, list[tuple[re.Pattern[str], WorkloadName]]] = defaultdict(list)
    for workload in estate.workloads:
        if workload.is_scalable:  # a CronJob `embed` may have any pod whose name begins with `embed-`
            patterns[workload.name.namespace].append((re.compile(pod_pattern(workload.name)), workload.name))
    # by workload, counter and pod: how many series
    series: dict[WorkloadName, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for labels, value in samples:
        namespace, pod = (labels.get(f"{prefix}{label}", "") for label in LABELS)
        name = next((name for pattern, name in patterns[namespace] if pattern.fullmatch(pod)), None)
        if name:
            pods = series[name][labels.get("__name__", "")]
            pods[pod] = pods.get(pod, 0.0) + value
    found = {}
    for name, counters in series.items():
        metrics = next((each for each in SERVERS if each.requests in counters), None)
        if metrics:
            has_one = max(counters[metrics.requests].values()) == 1
            selector = pods_selector(name, prefix)
            found[name] = MetricsOfWorkload(metrics, selector, f"{prefix}pod", has_one, is_renamed=bool(prefix))
    return found


def _find_istio(names: Iterable[WorkloadName], reader: MetricsReader) -> dict[WorkloadName, MetricsOfWorkload]:
    """Finds them by the names of their pods too: Istio does not say whether a workload is a Deployment or another."""
    labels = "destination_workload,destination_workload_namespace,namespace,pod"
    series: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for each, value in reader.read_samples(
        f'count by ({labels}) (last_over_time(istio_requests_total{{reporter="destination"}}[{reader.span}]))'
    ):
        if each.get("namespace") == each.get("destination_workload_namespace"):
            series[each.get("namespace", ""), each.get("destination_workload", "")][each.get("pod", "")] = value
    found = {}
    for name in names:
        pattern = re.compile(pod_pattern(name))
        counts = [count for pod, count in series[name.namespace, name.name].items() if pattern.fullmatch(pod)]
        if counts:
            found[name] = MetricsOfWorkload(ISTIO, istio_selector(name), "pod", has_one_series=max(counts) == 1)
    return found
