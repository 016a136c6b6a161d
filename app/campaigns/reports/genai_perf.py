"""Reads JSON of genai-perf, of AIPerf, which follows it, and of `vllm bench serve`: whole requests at one concurrency.

An LLM server batches continuously, so the concurrency stands for the batch: that many requests run together, and the
latency is the time until each has its last token.
"""

from __future__ import annotations

import json
from typing import Any

from app.campaigns.reports.figures import Figures, ToolReport, batch_of, number

UNITS_MS = {"ms": 1.0, "us": 1e-3, "ns": 1e-6, "s": 1e3}


def read_genai_perf(report: ToolReport) -> list[Figures]:
    """Returns the figures of the file. Raises ReportRefused."""
    try:
        document = json.loads(report.text.lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise report.refused(f"it is no JSON: {error}") from None
    if isinstance(document, dict) and "mean_ttft_ms" in document:
        return [_vllm(report, document)]
    latency = document.get("request_latency") if isinstance(document, dict) else None
    if not isinstance(latency, dict) or "avg" not in latency:
        raise report.refused(
            "it has no request_latency.avg; allowed are profile_export_genai_perf.json of genai-perf, "
            "profile_export_aiperf.json of AIPerf, and the JSON of vllm bench serve --save-result"
        )
    unit = latency.get("unit", "ms")
    if unit not in UNITS_MS:
        raise report.refused(f"request_latency.unit is {str(unit)[:20]!r}; allowed: {', '.join(UNITS_MS)}")
    mean_ms = number(report, "request_latency.avg", latency["avg"]) * UNITS_MS[unit]
    if mean_ms <= 0:
        raise report.refused("request_latency.avg is 0")
    spread_ms = number(report, "request_latency.std", latency.get("std", 0)) * UNITS_MS[unit]
    count = document.get("request_count")
    samples = number(report, "request_count.avg", count.get("avg", 1)) if isinstance(count, dict) else 1
    return [Figures(_batch(report, document), mean_ms, spread_ms, max(1, int(samples)), "client")]


def _batch(report: ToolReport, document: dict[str, Any]) -> int:
    """Returns the concurrency, where any version of the tool writes it, or what the user states."""
    settings = document.get("input_config")
    settings = settings if isinstance(settings, dict) else {}
    nested = settings.get("perf_analyzer")
    stimulus = nested.get("stimulus") if isinstance(nested, dict) else None
    for where in (stimulus, settings.get("loadgen"), settings):
        if isinstance(where, dict) and where.get("concurrency") is not None:
            return batch_of(report, "concurrency", where["concurrency"])
    if report.batch is None:
        raise report.refused("it does not say its concurrency (input_config.concurrency); state it with --batches")
    return report.batch


def _vllm(report: ToolReport, document: dict[str, Any]) -> Figures:
    """Returns the figures of `vllm bench serve`, which states the latency of whole requests where it is asked to."""
    if document.get("mean_e2el_ms") is None:
        raise report.refused(
            "it has no mean_e2el_ms, the latency of whole requests; "
            "measure with --percentile-metrics ttft,tpot,itl,e2el"
        )
    latency_ms = number(report, "mean_e2el_ms", document["mean_e2el_ms"])
    if latency_ms <= 0:
        raise report.refused("mean_e2el_ms is 0")
    if document.get("max_concurrency") is not None:
        batch = batch_of(report, "max_concurrency", document["max_concurrency"])
    elif report.batch is not None:
        batch = report.batch
    else:
        raise report.refused("its max_concurrency is null; measure with --max-concurrency, or state it with --batches")
    spread_ms = number(report, "std_e2el_ms", document.get("std_e2el_ms") or 0)
    samples = int(number(report, "completed", document.get("completed", 1)))
    return Figures(batch, latency_ms, spread_ms, max(1, samples), "client")
