"""Counts what the server has done, under the names of vLLM's metrics."""

from __future__ import annotations

from bisect import bisect_left

from agents.prometheus.writing import Family, format_families, format_labels, make_buckets, single

FIRST_TOKEN_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
TOKEN_SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_SECONDS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip


class _Histogram:
    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.edges, seconds)] += 1
        self.sum += seconds

    def family(self, name: str, labels: str) -> Family:
        return Family(name, "histogram", "", make_buckets(map(str, self.edges), self.counts, labels, self.sum))


class TokenFigures:
    """Totals since the server began."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.preemptions = 0
        self.finished = {"stop": 0, "length": 0, "abort": 0}
        self.rejected = 0
        self.busy_seconds = 0.0
        self.iterations = 0
        self.first_token = _Histogram(FIRST_TOKEN_SECONDS)
        self.each_token = _Histogram(TOKEN_SECONDS)
        self.token_of_request = _Histogram(TOKEN_SECONDS)
        self.request = _Histogram(REQUEST_SECONDS)

    def text(self, model: str, gauges: dict[str, float]) -> str:
        """Returns text for Prometheus."""
        labels = format_labels(model_name=model)
        totals = {
            "prompt_tokens": self.prompt_tokens,
            "generation_tokens": self.generation_tokens,
            "prefix_cache_queries": self.prompt_tokens,
            "prefix_cache_hits": self.cached_tokens,
            "num_preemptions": self.preemptions,
        }
        finished = [
            (format_labels(finished_reason=reason, model_name=model), count) for reason, count in self.finished.items()
        ]
        return format_families(
            (
                *(single(f"vllm:{name}", "gauge", value, labels=labels) for name, value in gauges.items()),
                *(single(f"vllm:{name}_total", "counter", count, labels=labels) for name, count in totals.items()),
                Family("vllm:request_success_total", "counter", "", finished),
                self.first_token.family("vllm:time_to_first_token_seconds", labels),
                self.each_token.family("vllm:time_per_output_token_seconds", labels),
                self.token_of_request.family("vllm:request_time_per_output_token_seconds", labels),
                self.request.family("vllm:e2e_request_latency_seconds", labels),
                single("gpuwright_llm_busy_seconds_total", "counter", round(self.busy_seconds, 6)),
                single("gpuwright_llm_iterations_total", "counter", self.iterations),
            )
        )
