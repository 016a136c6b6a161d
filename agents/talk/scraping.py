"""Reads the Prometheus metrics of model servers: gpuwright-serve, Triton, vLLM, SGLang and TGI.

A value that is not a finite number of at least 0 is dropped and counted, and so is an unreadable line; the rest is
used. Only lines with known metric names are parsed: vLLM exposes thousands of others.
"""

from __future__ import annotations

from collections.abc import Mapping

from agents.prometheus.reading import Samples, histogram, read, total
from agents.seams.traffic import Counters, Served
from agents.talk.token_servers import SGLANG, TGI, VLLM, read_sglang, read_tgi, read_vllm


def read_served(kind: str, text: bytes) -> Served | None:
    """Returns the figures in the text of a server of that kind; None for an unknown kind."""
    names = WANTED.get(kind)
    if names is None:
        return None
    samples, dropped = read(text, names)
    return READERS[kind](samples, dropped)


def job_served(text: bytes, units: str, saved: str) -> Served:
    """Returns the progress of a job from the metrics that its manifest names; `saved` may be empty."""
    samples, dropped = read(text, frozenset(filter(None, (units, saved))))
    return Served(Counters(), steps=total(samples, units), saved_steps=total(samples, saved), dropped=dropped)


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
        batch_timeout_ms=_scale(total(samples, "gpuwright_serve_batch_timeout_seconds"), 1000.0),
        steps=total(samples, "gpuwright_train_steps_total"),
        saved_steps=total(samples, "gpuwright_train_saved_steps"),
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


def _either(samples: Samples, figure: str) -> float | None:
    """Returns a figure of a server or, if there is none, of a job."""
    served = total(samples, f"gpuwright_serve_{figure}")
    return total(samples, f"gpuwright_train_{figure}") if served is None else served


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None


def _scale(value: float | None, by: float) -> float | None:
    return None if value is None else value * by


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


READERS = {"gpuwright": _gpuwright, "triton": _triton, "vllm": read_vllm, "sglang": read_sglang, "tgi": read_tgi}
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
            "train_saved_steps",
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
    "vllm": VLLM,
    "sglang": SGLANG,
    "tgi": TGI,
}
