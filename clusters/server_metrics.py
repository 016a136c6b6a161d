"""The counters of model servers and of Istio by name, and the queries that read a workload's load from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from clusters.estate import WorkloadName

SUFFIXES = {  # of a pod's name after its workload's
    "Deployment": "-[a-z0-9]+-[a-z0-9]{5}",
    "ReplicaSet": "-[a-z0-9]{5}",
    "StatefulSet": "-[0-9]+",
    "LeaderWorkerSet": "-[0-9]+(-[0-9]+)?",
    "Pod": "",
}
ANY_SUFFIX = "-.+"


@dataclass(frozen=True, slots=True)
class ServerMetrics:
    """What a kind of server counts; a histogram's name is without `_bucket`, and an empty name is not counted."""

    server: str
    requests: tuple[str, ...]  # counters that add up to requests
    latency: str
    latency_unit_ms: float
    first_token: str = ""
    token: tuple[str, ...] = ()  # the first that there is
    input_tokens: str = ""
    output_tokens: str = ""


SERVERS = (
    ServerMetrics(
        "vllm", ("vllm:request_success_total",), "vllm:e2e_request_latency_seconds", 1000.0,
        "vllm:time_to_first_token_seconds", ("vllm:request_time_per_output_token_seconds",),
        "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
    ),
    ServerMetrics(
        "sglang", ("sglang:num_requests_total",), "sglang:e2e_request_latency_seconds", 1000.0,
        "sglang:time_to_first_token_seconds",
        ("sglang:request_time_per_output_token_seconds", "sglang:inter_token_latency_seconds"),
        "sglang:prompt_tokens_total", "sglang:generation_tokens_total",
    ),
    ServerMetrics(
        "tgi", ("tgi_request_success", "tgi_request_failure"), "tgi_request_duration", 1000.0,
        "", ("tgi_request_mean_time_per_token_duration",),
        "tgi_request_input_length_sum", "tgi_request_generated_tokens_sum",
    ),
    ServerMetrics(
        "triton", ("nv_inference_request_success", "nv_inference_request_failure"),
        "nv_inference_first_response_histogram_ms", 1.0,
    ),
    ServerMetrics("gpuwright", ("gpuwright_serve_requests_total",), "gpuwright_serve_request_seconds", 1000.0),
)  # fmt: skip
ISTIO = ServerMetrics("istio", ("istio_requests_total",), "istio_request_duration_milliseconds", 1.0)


@dataclass(frozen=True, slots=True)
class MetricsOfWorkload:
    """The series of one workload: those of a kind of server with labels that choose its pods, past ones too."""

    metrics: ServerMetrics
    selector: str
    by_pod: str  # the label that names its pods

    def rate(self, window: str) -> str:
        first, *others = (f"sum(rate({name}{self.selector}[{window}]))" for name in self.metrics.requests)
        return " + ".join([first, *(f"({other} or 0 * {first})" for other in others)])

    @property
    def replicas(self) -> str:
        return f"count(count by ({self.by_pod}) ({self.metrics.requests[0]}{self.selector}))"

    def quantile(self, percentile: float, histogram: str, window: str) -> str:
        buckets = f"sum by (le) (rate({histogram}_bucket{self.selector}[{window}]))"
        return f"histogram_quantile({percentile / 100:g}, {buckets})"

    def mean(self, counter: str, window: str) -> str:
        return f"sum(rate({counter}{self.selector}[{window}])) / ({self.rate(window)} > 0)"


def pod_pattern(name: WorkloadName) -> str:
    """Returns the regular expression of the names of a workload's pods, past ones as well."""
    return re.escape(name.name).replace("\\-", "-") + SUFFIXES.get(name.kind, ANY_SUFFIX)


def pods_selector(name: WorkloadName, prefix: str) -> str:
    """Returns the labels of a workload's pods; `prefix` is `exported_` where the scraper kept labels of its own."""
    pattern = pod_pattern(name).replace("\\", "\\\\")
    return f'{{{prefix}namespace="{name.namespace}",{prefix}pod=~"{pattern}"}}'


def istio_selector(name: WorkloadName) -> str:
    return (
        f'{{reporter="destination",destination_workload="{name.name}",'
        f'destination_workload_namespace="{name.namespace}"}}'
    )


def known_counters() -> Iterator[tuple[str, ServerMetrics]]:
    for metrics in SERVERS:
        for name in metrics.requests:
            yield name, metrics
