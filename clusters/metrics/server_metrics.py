"""The counters of model servers and of Istio by name, and the queries that read a workload's load from them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from clusters.estate import WorkloadName

# A template's hash has these characters alone, so pods of a DaemonSet or Job `ranker-x` are none of `ranker`.
OF_TEMPLATE = "-[4-9bcdf]{5,10}-[a-z0-9]{5}"
SUFFIXES = {  # of a pod's name after its workload's
    "Deployment": OF_TEMPLATE,
    "Rollout": OF_TEMPLATE,
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
    requests: str  # counts those that were answered
    latency: str
    latency_unit_ms: float
    first_token: str = ""
    token: tuple[str, ...] = ()  # the first that there is
    input_tokens: str = ""
    output_tokens: str = ""
    served: str = ""  # labels of those that were answered as asked, where failures count, too
    waiting: str = ""  # how long requests wait before `latency` begins; empty: it is in it
    summary: str = ""  # of latencies by `quantile`, which each replica computes of its last minute, in microseconds


SERVERS = (
    ServerMetrics(
        "vllm", "vllm:request_success_total", "vllm:e2e_request_latency_seconds", 1000.0,
        "vllm:time_to_first_token_seconds", ("vllm:request_time_per_output_token_seconds",),
        "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
        'finished_reason!~"abort|error"',
    ),
    ServerMetrics(
        "sglang", "sglang:num_requests_total", "sglang:e2e_request_latency_seconds", 1000.0,
        "sglang:time_to_first_token_seconds",
        ("sglang:request_time_per_output_token_seconds", "sglang:inter_token_latency_seconds"),
        "sglang:prompt_tokens_total", "sglang:generation_tokens_total",
    ),
    ServerMetrics(
        "tgi", "tgi_request_success", "tgi_request_duration", 1000.0,
        "", ("tgi_request_mean_time_per_token_duration",),
        "tgi_request_input_length_sum", "tgi_request_generated_tokens_sum",
    ),
    ServerMetrics(
        "triton", "nv_inference_request_success", "nv_inference_first_response_histogram_ms", 1.0,
        "nv_inference_first_response_histogram_ms", summary="nv_inference_request_summary_us",
    ),
    ServerMetrics("gpuwright", "gpuwright_serve_requests_total", "gpuwright_serve_request_seconds", 1000.0),
)  # fmt: skip
ISTIO = ServerMetrics(
    "istio", "istio_requests_total", "istio_request_duration_milliseconds", 1.0,
    served='response_code=~"[23]..",grpc_response_status=~"0?"',
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MetricsOfWorkload:
    """The series of one workload: those of a kind of server with labels that choose its pods, past ones too."""

    metrics: ServerMetrics
    selector: str
    by_pod: str  # the label that names its pods
    has_one_series: bool = False  # of the counter, for each pod: then there is nothing to add up
    is_renamed: bool = False  # found by labels that the scraped pod wrote itself

    @property
    def served(self) -> str:
        """Returns the labels of what was served: a quick refusal is neither load that was carried nor a latency."""
        return f"{self.selector[:-1]},{self.metrics.served}}}" if self.metrics.served else self.selector

    def rate(self, window: str) -> str:
        return f"sum(rate({self.metrics.requests}{self.served}[{window}]))"

    @property
    def sampled_at(self) -> str:
        """Returns when the newest sample of its counter was taken, if that is minutes ago at most."""
        return f"max(timestamp({self.metrics.requests}{self.selector}))"

    @property
    def replicas(self) -> str:
        if self.has_one_series:
            return f"count({self.metrics.requests}{self.selector})"
        return f"count(count by ({self.by_pod}) ({self.metrics.requests}{self.selector}))"

    def quantile(self, percentile: float, histogram: str, window: str, bounds: Sequence[str] = ()) -> str:
        """Returns the query of a quantile; with `bounds` of these buckets alone."""
        chosen = self.buckets(histogram)
        if bounds:
            pattern = "|".join(map(re.escape, bounds)).replace("\\-", "-").replace("\\", "\\\\")
            chosen = f'{chosen[:-1]},le=~"{pattern}"}}'
        return f"histogram_quantile({percentile / 100:g}, sum by (le) (rate({chosen}[{window}])))"

    @property
    def summaries(self) -> str:
        return f"{self.metrics.summary}{self.selector}"

    def worst(self, quantile: str, window: str) -> str:
        """Returns the highest quantile of a replica and minute: of all requests together, no more were slower."""
        chosen = f'{self.metrics.summary}{self.selector[:-1]},quantile="{quantile}"}}'
        return f"max(max_over_time({chosen}[{window}]))"

    def buckets(self, histogram: str) -> str:
        chosen = self.served if self.metrics is ISTIO else self.selector  # histograms of servers have other labels
        return f"{histogram}_bucket{chosen}"

    def amount(self, counter: str, window: str) -> str:
        return f"sum(rate({counter}{self.selector}[{window}]))"


def pod_pattern(name: WorkloadName) -> str:
    """Returns the regular expression of the names of a workload's pods, past ones as well."""
    return re.escape(name.name).replace("\\-", "-") + SUFFIXES.get(name.kind, ANY_SUFFIX)


def pods_selector(name: WorkloadName, prefix: str) -> str:
    """Returns the labels of a workload's pods; `prefix` is `exported_` where those of the scrape stayed."""
    return f"{{{_choose_pods(name, prefix)}}}"


def istio_selector(name: WorkloadName) -> str:
    """Returns the labels of a workload's own proxies: whose they are, Prometheus says, and not they themselves."""
    return (
        f'{{reporter="destination",destination_workload="{name.name}",'
        f'destination_workload_namespace="{name.namespace}",{_choose_pods(name)}}}'
    )


def _choose_pods(name: WorkloadName, prefix: str = "") -> str:
    pattern = pod_pattern(name).replace("\\", "\\\\")
    return f'{prefix}namespace="{name.namespace}",{prefix}pod=~"{pattern}"'
