"""Reads the Prometheus metrics of servers of language models: vLLM, SGLang and TGI.

They batch continuously, so their batch is what runs now.
"""

from __future__ import annotations

from agents.prometheus.reading import Samples, histogram, total
from agents.seams.traffic import Counters, Served, TokensServed


def read_vllm(samples: Samples, dropped: int) -> Served:
    """Reads vLLM's counts; aborted requests are errors."""
    finished = samples.get("vllm:request_success_total", [])
    failed = sum(value for labels, value in finished if labels.get("finished_reason") in ("abort", "error"))
    return _sum_served(
        samples,
        dropped,
        (sum(value for _, value in finished), failed),
        ("vllm:num_requests_running", "vllm:num_requests_waiting"),
        ("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
        # Releases before the time of a request's tokens had only that of single tokens.
        ("vllm:e2e_request_latency", "vllm:time_to_first_token", "vllm:request_time_per_output_token"),
    )


def read_sglang(samples: Samples, dropped: int) -> Served:
    """Reads SGLang's counts. The pace of releases without the mean over a request is that of single tokens."""
    aborted = total(samples, "sglang:num_aborted_requests_total") or 0.0
    by_request = "sglang:request_time_per_output_token"
    pace = by_request if by_request + "_seconds_bucket" in samples else "sglang:inter_token_latency"
    return _sum_served(
        samples,
        dropped,
        (total(samples, "sglang:num_requests_total") or 0.0, aborted),
        ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
        ("sglang:prompt_tokens_total", "sglang:generation_tokens_total"),
        ("sglang:e2e_request_latency", "sglang:time_to_first_token", pace),
    )


def read_tgi(samples: Samples, dropped: int) -> Served:
    """Reads TGI's counts. It does not say when first tokens come; tokens are the sums of its histograms of lengths."""
    failed = total(samples, "tgi_request_failure") or 0.0
    answered = total(samples, "tgi_request_success") or 0.0
    return _sum_served(
        samples,
        dropped,
        (answered + failed, failed),
        ("tgi_batch_current_size", "tgi_queue_size"),
        ("tgi_request_input_length_sum", "tgi_request_generated_tokens_sum"),
        ("tgi_request_duration", "", "tgi_request_mean_time_per_token_duration"),
        unit="",
    )


def _sum_served(
    samples: Samples,
    dropped: int,
    requests: tuple[float, float],
    now: tuple[str, str],
    tokens: tuple[str, str],
    times: tuple[str, str, str],
    unit: str = "_seconds",
) -> Served:
    latency, first, pace = (histogram(samples, name + unit, 1000.0) if name else ((), 0) for name in times)
    tokens_in, tokens_out = (total(samples, name) for name in tokens)
    counted = tokens_in is not None or tokens_out is not None
    return Served(
        Counters(int(requests[0]), int(requests[1]), latency[0]),
        batch_mean=total(samples, now[0]),
        queue=total(samples, now[1]),
        busy_seconds=total(samples, "gpuwright_llm_busy_seconds_total"),
        tokens=TokensServed(int(tokens_in or 0), int(tokens_out or 0), first[0], pace[0]) if counted else None,
        dropped=dropped + latency[1] + first[1] + pace[1],
    )


VLLM = frozenset(
    {"gpuwright_llm_busy_seconds_total"}
    | {
        f"vllm:{name}"
        for name in (
            "e2e_request_latency_seconds_bucket",
            "generation_tokens_total",
            "num_requests_running",
            "num_requests_waiting",
            "prompt_tokens_total",
            "request_success_total",
            "request_time_per_output_token_seconds_bucket",
            "time_to_first_token_seconds_bucket",
        )
    }
)
SGLANG = frozenset(
    f"sglang:{name}"
    for name in (
        "e2e_request_latency_seconds_bucket",
        "generation_tokens_total",
        "inter_token_latency_seconds_bucket",
        "num_aborted_requests_total",
        "num_queue_reqs",
        "num_requests_total",
        "num_running_reqs",
        "prompt_tokens_total",
        "request_time_per_output_token_seconds_bucket",
        "time_to_first_token_seconds_bucket",
    )
)
TGI = frozenset(
    f"tgi_{name}"
    for name in (
        "batch_current_size",
        "queue_size",
        "request_duration_bucket",
        "request_failure",
        "request_generated_tokens_sum",
        "request_input_length_sum",
        "request_mean_time_per_token_duration_bucket",
        "request_success",
    )
)
