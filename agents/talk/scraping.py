"""Reads the Prometheus metrics of model servers: gpuwright-serve, Triton and vLLM.

A value that is not a finite number of at least 0 is dropped and counted, and so is an unreadable line; the rest is
used. Only lines with known metric names are parsed: vLLM exposes thousands of others.
"""

from __future__ import annotations

from collections.abc import Mapping

from agents.seams.traffic import Counters, Served
from agents.talk.prometheus_text import Samples, histogram, read, total


def served_of(kind: str, text: bytes) -> Served | None:
    """Returns the figures in the text of a server of that kind; None for an unknown kind."""
    names = WANTED.get(kind)
    if names is None:
        return None
    samples, dropped = read(text, names)
    return READERS[kind](samples, dropped)


def _gpuwright(samples: Samples, dropped: int) -> Served:
    latency, odd = histogram(samples, "gpuwright_serve_request_seconds", 1000.0)
    inferences, batches = (
        total(samples, "gpuwright_serve_batched_total"),
        total(samples, "gpuwright_serve_batches_total"),
    )
    memory = _either(samples, "memory_bytes")
    return Served(
        Counters(
            int(total(samples, "gpuwright_serve_requests_total") or 0),
            int(total(samples, "gpuwright_serve_errors_total") or 0),
            latency,
        ),
        batch_mean=_ratio(inferences, batches),
        queue=total(samples, "gpuwright_serve_queue"),
        busy_seconds=total(samples, "gpuwright_serve_busy_seconds_total"),
        sm_count=_whole(_either(samples, "sm_count")),
        memory_gib=None if memory is None else memory / 2**30,
        batch=_whole(total(samples, "gpuwright_serve_batch_limit")),
        batch_timeout_ms=_scaled(total(samples, "gpuwright_serve_batch_timeout_seconds"), 1000.0),
        steps=total(samples, "gpuwright_train_steps_total"),
        batches=batches,
        dropped=dropped + odd,
    )


def _triton(samples: Samples, dropped: int) -> Served:
    """Reads Triton's counts, by model and version. Its times are sums over requests, so they give no busy time.

    Its histogram is off unless it runs with `--metrics-config histogram_latencies=true`.
    """
    latency, odd = histogram(samples, "nv_inference_first_response_histogram_ms", 1.0)
    good, bad = total(samples, "nv_inference_request_success"), total(samples, "nv_inference_request_failure")
    inferences, batches = total(samples, "nv_inference_count"), total(samples, "nv_inference_exec_count")
    return Served(
        Counters(int((good or 0) + (bad or 0)), int(bad or 0), latency),
        batch_mean=_ratio(inferences, batches),
        queue=total(samples, "nv_inference_pending_request_count"),
        batches=batches,
        dropped=dropped + odd,
    )


def _vllm(samples: Samples, dropped: int) -> Served:
    """Reads vLLM's counts. It batches continuously, so its batch is what runs now; aborted requests are errors."""
    latency, odd = histogram(samples, "vllm:e2e_request_latency_seconds", 1000.0)
    finished = samples.get("vllm:request_success_total", [])
    failed = sum(value for labels, value in finished if labels.get("finished_reason") in ("abort", "error"))
    return Served(
        Counters(int(sum(value for _, value in finished)), int(failed), latency),
        batch_mean=total(samples, "vllm:num_requests_running"),
        queue=total(samples, "vllm:num_requests_waiting"),
        dropped=dropped + odd,
    )


def _either(samples: Samples, figure: str) -> float | None:
    """Returns a figure of a server or, if there is none, of a job."""
    served = total(samples, f"gpuwright_serve_{figure}")
    return total(samples, f"gpuwright_train_{figure}") if served is None else served


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value * by


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


READERS = {"gpuwright": _gpuwright, "triton": _triton, "vllm": _vllm}
WANTED: Mapping[str, frozenset[str]] = {
    "gpuwright": frozenset(
        f"gpuwright_{name}"
        for name in (
            "serve_requests_total",
            "serve_errors_total",
            "serve_request_seconds_bucket",
            "serve_batched_total",
            "serve_batches_total",
            "serve_queue",
            "serve_busy_seconds_total",
            "serve_sm_count",
            "serve_memory_bytes",
            "serve_batch_limit",
            "serve_batch_timeout_seconds",
            "train_steps_total",
            "train_sm_count",
            "train_memory_bytes",
        )
    ),
    "triton": frozenset(
        f"nv_inference_{name}"
        for name in (
            "request_success",
            "request_failure",
            "count",
            "exec_count",
            "pending_request_count",
            "first_response_histogram_ms_bucket",
        )
    ),
    "vllm": frozenset(
        f"vllm:{name}"
        for name in (
            "e2e_request_latency_seconds_bucket",
            "request_success_total",
            "num_requests_running",
            "num_requests_waiting",
        )
    ),
}
