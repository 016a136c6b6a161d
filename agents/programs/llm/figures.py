"""Counts what the server has done, under the names of vLLM's metrics."""

from __future__ import annotations

from bisect import bisect_left

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

    def lines(self, name: str, label: str) -> list[str]:
        found = [f"# TYPE vllm:{name} histogram"]
        below = 0
        for edge, count in zip([*map(str, self.edges), "+Inf"], self.counts, strict=True):
            below += count
            found.append(f'vllm:{name}_bucket{{le="{edge}",{label}}} {below}')
        return [*found, f"vllm:{name}_sum{{{label}}} {round(self.sum, 6)}", f"vllm:{name}_count{{{label}}} {below}"]


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
        label = f'model_name="{model}"'
        lines: list[str] = []
        for name, value in gauges.items():
            lines += [f"# TYPE vllm:{name} gauge", f"vllm:{name}{{{label}}} {value:.15g}"]
        for name, count in (
            ("prompt_tokens_total", self.prompt_tokens),
            ("generation_tokens_total", self.generation_tokens),
            ("prefix_cache_queries_total", self.prompt_tokens),
            ("prefix_cache_hits_total", self.cached_tokens),
            ("num_preemptions_total", self.preemptions),
        ):
            lines += [f"# TYPE vllm:{name} counter", f"vllm:{name}{{{label}}} {count}"]
        lines.append("# TYPE vllm:request_success_total counter")
        for reason, count in self.finished.items():
            lines.append(f'vllm:request_success_total{{finished_reason="{reason}",{label}}} {count}')
        lines += self.first_token.lines("time_to_first_token_seconds", label)
        lines += self.each_token.lines("time_per_output_token_seconds", label)
        lines += self.token_of_request.lines("request_time_per_output_token_seconds", label)
        lines += self.request.lines("e2e_request_latency_seconds", label)
        lines += ["# TYPE gpuwright_llm_busy_seconds_total counter"]
        lines += [f"gpuwright_llm_busy_seconds_total {round(self.busy_seconds, 6)}"]
        lines += ["# TYPE gpuwright_llm_iterations_total counter", f"gpuwright_llm_iterations_total {self.iterations}"]
        return "\n".join(lines) + "\n"
