"""Reads what Prometheus has of an estate: loads of workloads, use of GPUs, prices; quantiles are taken on its side."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.manifests.numbers import finite_number
from app.manifests.prices import NANO
from clusters.estate import Estate, UnknownFigure, WorkloadName
from clusters.gpu_metrics import read_gpus, uses_of
from clusters.gpu_use import MeasuredGpu, WorkloadUse
from clusters.measured import USUAL_PERCENTILE, MeasuredLoads, MeasuredSeries, WorkloadSeries
from clusters.prometheus import MetricSample, MetricsSource, PrometheusFailed
from clusters.server_metrics import (
    ISTIO,
    MetricsOfWorkload,
    istio_selector,
    known_counters,
    pod_pattern,
    pods_selector,
)

STEP_SECONDS = 900
WINDOW = f"{STEP_SECONDS}s"
PEAK_WINDOW, PEAK_STEP = "2m", "1m"
MOST_SKEW_SECONDS = 300
# What pods hold that neither a Deployment nor a StatefulSet, nor what is built of them, has made.
HOLDS = 'kube_pod_container_resource_requests{resource=~"nvidia_com_.*"}'
UNSCALED = 'max by (namespace, pod) (kube_pod_owner{owner_kind!~"ReplicaSet|StatefulSet"})'
ALIVE = 'max by (namespace, pod) (kube_pod_status_phase{phase=~"Pending|Running"} == 1)'
JOINED = "* on (namespace, pod) group_left ()"
PASSING = f"max_over_time((sum by (node) ({HOLDS} {JOINED} {UNSCALED} {JOINED} {ALIVE}))[{WINDOW}:{PEAK_STEP}])"
STANDING = (
    f'max_over_time((max by (node) (kube_node_status_capacity{{resource=~"nvidia_com_.*"}}))[{WINDOW}:{PEAK_STEP}])'
)
MILLISECONDS = 1e-3  # in a microsecond
ROUNDING = 1e-6  # of what Prometheus computes
WHOLE_SHARE = 0.9  # of the steps
SUBJECT = "Prometheus"


@dataclass(frozen=True, slots=True)
class PrometheusReading:
    """All that Prometheus has of an estate, and what it has not."""

    loads: MeasuredLoads
    gpus: tuple[MeasuredGpu, ...]
    uses: Mapping[WorkloadName, WorkloadUse]
    node_prices: Mapping[str, int]  # OpenCost's, in billionths an hour
    unknown: tuple[UnknownFigure, ...]


def measure(
    estate: Estate, source: MetricsSource, seconds: float, here: float, percentiles: Mapping[WorkloadName, float]
) -> PrometheusReading:
    """Returns what the source has of the last `seconds`; PrometheusFailed where it does not answer at all.

    `here` is the time of this machine, which is compared with the source's; `percentiles` are those of promises.
    """
    now = source.now()
    unknown: list[UnknownFigure] = []
    if abs(now - here) > MOST_SKEW_SECONDS:
        reason = f"its clock is {_span(now - here)} {'ahead of' if now > here else 'behind'} this machine's"
        unknown.append(UnknownFigure(SUBJECT, reason, "times are counted back from its clock; set one of the two"))
    ends = _step_ends(now - now % STEP_SECONDS, seconds)  # the last step is over
    reader = _Reader(source, ends, now, seconds, unknown)
    found = reader.loads(estate, percentiles)
    gpus, problems = read_gpus(estate, reader.samples, f"{seconds:.0f}s")
    passing, standing = reader.passing_gpus(estate), reader.standing_nodes()
    loads = MeasuredLoads(round(ends[0]) - STEP_SECONDS, STEP_SECONDS, len(ends), SUBJECT, found, passing, standing)
    return PrometheusReading(loads, gpus, uses_of(estate, gpus), reader.node_prices(), (*unknown, *problems))


def measure_loads(
    estate: Estate, source: MetricsSource, seconds: float, percentiles: Mapping[WorkloadName, float]
) -> MeasuredLoads:
    """Returns the loads of the last `seconds` until this moment; PrometheusFailed where there is no answer at all."""
    now, unknown = source.now(), list[UnknownFigure]()
    ends = _step_ends(now, seconds)
    found = _Reader(source, ends, now, seconds, unknown).loads(estate, percentiles)
    start = round(ends[0]) - STEP_SECONDS
    return MeasuredLoads(start, STEP_SECONDS, len(ends), SUBJECT, found, unknown=tuple(unknown))


class _Reader:
    """Asks one source; a query that fails is a sentence, once, and its figure is missing."""

    def __init__(
        self, source: MetricsSource, ends: Sequence[float], now: float, seconds: float, unknown: list[UnknownFigure]
    ) -> None:
        self._source, self._ends, self._now, self._seconds = source, ends, now, seconds
        self._span = f"{seconds:.0f}s"
        self._unknown = unknown

    def samples(self, query: str) -> list[MetricSample]:
        try:
            return self._source.at(query, self._now)
        except PrometheusFailed as failed:
            self._failed(query, failed)
            return []

    def _over(self, query: str, scale: float = 1.0) -> MeasuredSeries:
        """Returns the values of all steps; nothing where Prometheus has none of them."""
        by_moment = self._read_by_label(query, "").get("", {})
        if not by_moment:
            return ()
        return tuple(None if (value := by_moment.get(round(end))) is None else value * scale for end in self._ends)

    def _read_by_label(self, query: str, label: str) -> dict[str, dict[int, float]]:
        try:
            found = self._source.over(query, self._ends, label)
        except PrometheusFailed as failed:
            self._failed(query, failed)
            return {}
        return {name: {round(moment): value for moment, value in values.items()} for name, values in found.items()}

    def _failed(self, query: str, failed: PrometheusFailed) -> None:
        name = next(iter(re.findall(r"[a-zA-Z_:]+(?=[{\[])", query)), query[:40])
        figure = UnknownFigure(f"query of {name}", str(failed), "ask for a shorter time with --from, or later")
        if figure not in self._unknown:
            self._unknown.append(figure)

    def find_servers(self, estate: Estate) -> dict[WorkloadName, MetricsOfWorkload]:
        """Returns whose counters tell of each workload: those of its pods, else Istio's."""
        counters = dict(known_counters())
        names = "|".join(counters)
        labels = "__name__,namespace,pod,exported_namespace,exported_pod"
        query = f'count by ({labels}) (last_over_time({{__name__=~"{names}"}}[{self._seconds:.0f}s]))'
        patterns: dict[str, list[tuple[re.Pattern[str], WorkloadName]]] = defaultdict(list)
        for workload in estate.workloads:
            patterns[workload.name.namespace].append((re.compile(pod_pattern(workload.name)), workload.name))
        found: dict[WorkloadName, MetricsOfWorkload] = {}
        for sample in self.samples(query):
            for prefix in ("exported_", ""):
                pod, namespace = (sample.labels.get(f"{prefix}{label}", "") for label in ("pod", "namespace"))
                name = next((name for pattern, name in patterns[namespace] if pattern.fullmatch(pod)), None)
                metrics = counters.get(sample.labels.get("__name__", ""))
                if name and metrics:
                    found[name] = MetricsOfWorkload(metrics, pods_selector(name, prefix), f"{prefix}pod")
                    break
        return self._with_istio(estate, found)

    def _with_istio(
        self, estate: Estate, found: dict[WorkloadName, MetricsOfWorkload]
    ) -> dict[WorkloadName, MetricsOfWorkload]:
        missing = [each.name for each in estate.workloads if each.is_scalable and each.name not in found]
        if not missing:
            return found
        seen = self.samples(
            "count by (destination_workload,destination_workload_namespace) "
            f'(last_over_time(istio_requests_total{{reporter="destination"}}[{self._seconds:.0f}s]))'
        )
        known = {
            (each.labels.get("destination_workload_namespace", ""), each.labels.get("destination_workload", ""))
            for each in seen
        }
        for name in missing:
            if (name.namespace, name.name) in known:
                found[name] = MetricsOfWorkload(ISTIO, istio_selector(name), "pod")
        return found

    def loads(self, estate: Estate, percentiles: Mapping[WorkloadName, float]) -> dict[WorkloadName, WorkloadSeries]:
        """Returns the load of each workload that can be scaled, as far as there are counters of it."""
        servers = self.find_servers(estate)
        found = {}
        for workload in estate.workloads:
            name = workload.name
            if workload.is_scalable and name in servers:
                found[name] = self.load(servers[name], percentiles.get(name, USUAL_PERCENTILE))
            elif workload.is_scalable and workload.gpus:
                reason = "Prometheus has no counters of vLLM, SGLang, TGI, Triton, gpuwright-serve or Istio of its pods"
                self._unknown.append(UnknownFigure(f"workload {name}", reason, "let Prometheus scrape its servers"))
        self._unknown += _lacking(found, len(self._ends))
        return found

    def load(self, series: MetricsOfWorkload, percentile: float) -> WorkloadSeries:
        metrics = series.metrics
        return WorkloadSeries(
            rates_per_second=self._over(series.rate(WINDOW)),
            ready_replicas=self._over(f"max_over_time(({series.replicas})[{WINDOW}:{PEAK_STEP}])"),
            fewest_replicas=self._over(f"min_over_time(({series.replicas})[{WINDOW}:{PEAK_STEP}])"),
            latency_ms=self._summary(series, percentile) or self._quantile(series, percentile, (metrics.latency,)),
            input_tokens=self._mean(series, metrics.input_tokens),
            output_tokens=self._mean(series, metrics.output_tokens),
            server=metrics.server,
            peaks_per_second=self._over(f"max_over_time(({series.rate(PEAK_WINDOW)})[{WINDOW}:{PEAK_STEP}])"),
            first_token_ms=self._quantile(series, percentile, (metrics.first_token,)),
            token_ms=self._quantile(series, percentile, metrics.token),
        )

    def _quantile(self, series: MetricsOfWorkload, percentile: float, histograms: Sequence[str]) -> MeasuredSeries:
        """Returns the quantile of the first of these histograms that has samples; nothing where none has.

        What Prometheus gives lies between the bounds of a bucket as if its requests were spread evenly. All that is
        sure is the upper bound, which is returned; infinity for a quantile above all bounds.
        """
        unit = series.metrics.latency_unit_ms
        for histogram in filter(None, histograms):
            found = self._over(series.quantile(percentile, histogram, WINDOW))
            if found:
                labels = [each.labels.get("le", "") for each in self.samples(series.bounds(histogram, self._span))]
                bounds = sorted(bound for label in labels if (bound := finite_number(label)) is not None)
                return tuple(None if value is None else unit * _bound_above(value, bounds) for value in found)
        return ()

    def _summary(self, series: MetricsOfWorkload, percentile: float) -> MeasuredSeries:
        """Returns the highest of the quantiles that replicas computed themselves; nothing where they do not."""
        if not series.metrics.summary:
            return ()
        labels = [each.labels.get("quantile", "") for each in self.samples(series.quantiles(self._span))]
        known = {value: label for label in labels if (value := finite_number(label)) is not None}
        enough = min((value for value in known if value * 100 >= percentile * (1 - ROUNDING)), default=None)
        return () if enough is None else self._over(series.worst(known[enough], WINDOW), MILLISECONDS)

    def _mean(self, series: MetricsOfWorkload, counter: str) -> MeasuredSeries:
        return self._over(series.mean(counter, WINDOW)) if counter else ()

    def passing_gpus(self, estate: Estate) -> dict[str, MeasuredSeries]:
        """Returns the most GPUs of each node that pods held at once which nothing scales, by kube-state-metrics.

        A step without kube-state-metrics is a gap. It knows nothing of claims, so nodes of a DRA driver are left out.
        """
        is_seen = self._over("count(kube_pod_owner)")
        if not is_seen:
            return {}
        found = self._read_by_label(PASSING, "node")
        held = {}
        for node in estate.nodes:
            if node.offers:
                part = float(max(offer.gpus_per_slot for offer in node.offers))
                values = found.get(node.name, {})
                held[node.name] = tuple(
                    None if seen is None else values.get(round(end), 0.0) * part
                    for end, seen in zip(self._ends, is_seen, strict=True)
                )
        return held

    def standing_nodes(self) -> dict[str, MeasuredSeries]:
        """Returns of each node with GPUs for how much of each step it stood; without kube-state-metrics it is a gap."""
        found = self._read_by_label(STANDING, "node")
        moments = [round(end) for end in self._ends]
        seen = {moment for values in found.values() for moment in values}
        return {
            node: tuple(min(1.0, values.get(moment, 0.0)) if moment in seen else None for moment in moments)
            for node, values in found.items()
            if node
        }

    def node_prices(self) -> dict[str, int]:
        """Returns OpenCost's price of each node, in billionths an hour."""
        samples = self.samples("avg by (node) (node_total_hourly_cost)")
        return {
            each.labels["node"]: round(each.value * NANO)
            for each in samples
            if each.labels.get("node") and each.value > 0
        }


def _bound_above(value: float, bounds: Sequence[float]) -> float:
    """Returns the upper bound of the bucket that has this value. What is above all of them is clipped to the last."""
    if not bounds or value >= bounds[-1] * (1 - ROUNDING):
        return math.inf
    return next(bound for bound in bounds if bound * (1 + ROUNDING) >= value)


def _step_ends(last: float, seconds: float) -> list[float]:
    """Returns the ends of steps until the last end."""
    count = max(1, int(seconds // STEP_SECONDS))
    return [last - STEP_SECONDS * back for back in reversed(range(count))]


def _lacking(loads: Mapping[WorkloadName, WorkloadSeries], steps: int) -> list[UnknownFigure]:
    """Returns sentences on loads that are there in parts: without times, or not for all of the time."""
    found = []
    for name, load in loads.items():
        subject = f"workload {name}"
        known = sum(value is not None for value in load.rates_per_second)
        if known < WHOLE_SHARE * steps:
            reason = f"Prometheus has its load for {_span(known * STEP_SECONDS)} of {_span(steps * STEP_SECONDS)}"
            found.append(UnknownFigure(subject, reason, "what is shown is of that time alone"))
        if any(load.rates_per_second) and not load.latency_ms and not load.first_token_ms:
            remedy = "let Prometheus scrape its latencies"
            if load.server == "triton":
                remedy = "run Triton with --metrics-config summary_latencies=true"
            found.append(UnknownFigure(subject, f"no metric of {load.server} says which latency it keeps", remedy))
    return found


def _span(seconds: float) -> str:
    hours = abs(seconds) / 3600
    if hours < 1:
        return f"{hours * 60:.0f} minutes"
    return f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} hours"
