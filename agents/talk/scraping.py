"""Reads the Prometheus metrics of model servers: gpuwright-serve, Triton and vLLM.

A value that is not a finite number of at least 0 is dropped and counted, and so is an unreadable line; the rest is
used. Only lines with known metric names are parsed: vLLM exposes thousands of others.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping

from agents.contract.fields import LATENCY_EDGES_MS
from agents.seams.traffic import Counters, Served

LARGEST_VALUE = 1e15
LONGEST_LINE_BYTES = 4096
MOST_SAMPLES = 20_000
MOST_LINES = 100_000  # of the whole text; the rest counts as one line that is too long
_EDGES = tuple(LATENCY_EDGES_MS)
Labels = dict[str, str]
Samples = dict[str, list[tuple[Labels, float]]]


def served_of(kind: str, text: bytes) -> Served | None:
    """Returns the figures in the text of a server of that kind; None for an unknown kind."""
    names = WANTED.get(kind)
    if names is None:
        return None
    samples, dropped = read(text, names)
    return READERS[kind](samples, dropped)


def read(text: bytes, wanted: frozenset[str]) -> tuple[Samples, int]:
    """Returns the samples of these metrics, and how many of their lines were dropped."""
    starts = tuple(name.encode() for name in wanted)
    samples: Samples = {}
    dropped = taken = 0
    for line in text.split(b"\n", MOST_LINES):
        if not line.startswith(starts):
            continue
        sample = _sample(line) if taken < MOST_SAMPLES else None
        taken += 1
        if sample is None:
            dropped += 1
        elif sample[0] in wanted:
            samples.setdefault(sample[0], []).append(sample[1:])
    return samples, dropped


def _sample(line: bytes) -> tuple[str, Labels, float] | None:
    """Parses `name{a="b"} 1.5 [timestamp]`; returns None if it is malformed or its value is not an amount."""
    if len(line) > LONGEST_LINE_BYTES:
        return None
    try:
        text = line.decode().rstrip("\r")
    except UnicodeDecodeError:
        return None
    labels: Labels = {}
    brace = text.find("{")
    if brace >= 0:
        name = text[:brace].rstrip()
        end = _labels(text, brace + 1, labels)
        if end < 0:
            return None
        rest = text[end:].split()
    else:
        name, _, remainder = text.partition(" ")
        rest = remainder.split()
    if not 1 <= len(rest) <= 2:
        return None
    try:
        # float() would also accept 1_000 and non-ASCII digits.
        value = float(rest[0]) if rest[0].isascii() and "_" not in rest[0] else math.nan
    except ValueError:
        return None
    if not 0 <= value <= LARGEST_VALUE:  # false for NaN, too
        return None
    return name, labels, value


def _labels(text: str, at: int, labels: Labels) -> int:
    """Reads labels from `at` on; returns the index after the closing brace, or -1."""
    while at < len(text):
        if text[at] == "}":
            return at + 1
        equals = text.find('="', at)
        if equals < 0:
            return -1
        name = text[at:equals].strip()
        at = equals + 2
        pieces: list[str] = []
        while True:
            end = at
            while end < len(text) and text[end] not in '"\\':
                end += 1
            pieces.append(text[at:end])
            if end + 1 >= len(text):
                return -1
            if text[end] == '"':
                at = end + 1
                break
            escaped = text[end + 1]
            pieces.append("\n" if escaped == "n" else escaped)
            at = end + 2
        labels[name] = "".join(pieces)
        while at < len(text) and text[at] in ", ":
            at += 1
    return -1


def total(samples: Samples, name: str) -> float | None:
    """Returns the sum over all label sets; None if there is no sample."""
    found = samples.get(name)
    return sum(value for _, value in found) if found else None


def histogram(samples: Samples, name: str, ms_per_unit: float) -> tuple[tuple[int, ...], int]:
    """Returns a cumulative histogram's counts by LATENCY_EDGES_MS, and how many of its buckets were invalid.

    A source's bucket is counted where its upper edge falls, so that no latency looks shorter than it was.
    """
    cumulative: dict[float, float] = {}
    dropped = 0
    for labels, value in samples.get(name + "_bucket", ()):
        try:
            edge = float(labels.get("le", ""))
        except ValueError:
            edge = math.nan
        if not edge >= 0:
            dropped += 1
            continue
        cumulative[edge] = cumulative.get(edge, 0.0) + value
    counts = [0] * (len(_EDGES) + 1)
    before = 0.0
    for edge in sorted(cumulative):
        if cumulative[edge] < before:
            dropped += 1  # a cumulative count cannot fall
            continue
        counts[bisect_left(_EDGES, edge * ms_per_unit * (1 - 1e-9))] += int(cumulative[edge] - before)
        before = cumulative[edge]
    while counts and counts[-1] == 0:
        counts.pop()
    return tuple(counts), dropped


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
