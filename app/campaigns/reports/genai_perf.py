"""Reads JSON of genai-perf, of AIPerf, which follows it, and of `vllm bench serve`: whole requests at one concurrency.

An LLM server batches continuously, so the concurrency stands for the batch: that many requests run together, and the
latency is the time until each has its last token.
"""

from __future__ import annotations

from app.campaigns.reports.figures import Figures, ToolReport, batch_of, number
from app.campaigns.reports.load_tools import find_stated_loads, read_object, unit_ms


def read_genai_perf(report: ToolReport) -> list[Figures]:
    """Returns the figures of the file. Raises ReportRefused."""
    document = read_object(report)
    if "mean_ttft_ms" in document:
        return [_vllm(report, document)]
    latency = document.get("request_latency")
    if not isinstance(latency, dict) or "avg" not in latency:
        raise report.refused(
            "it has no request_latency.avg; allowed are profile_export_genai_perf.json of genai-perf, "
            "profile_export_aiperf.json of AIPerf, and the JSON of vllm bench serve --save-result"
        )
    each_ms = unit_ms(report, "request_latency", latency)
    mean_ms = number(report, "request_latency.avg", latency["avg"]) * each_ms
    if mean_ms <= 0:
        raise report.refused("request_latency.avg is 0")
    spread_ms = number(report, "request_latency.std", latency.get("std", 0)) * each_ms
    count = document.get("request_count")
    samples = number(report, "request_count.avg", count.get("avg", 1)) if isinstance(count, dict) else 1
    return [Figures(_batch(report, document), mean_ms, spread_ms, max(1, int(samples)), "client")]


def _batch(report: ToolReport, document: dict[str, object]) -> int:
    """Returns the concurrency, where any version of the tool writes it, or what the user states."""
    for place in find_stated_loads(document):
        if place.get("concurrency") is not None:
            return batch_of(report, "concurrency", place["concurrency"])
    if report.batch is None:
        raise report.refused("it does not say its concurrency (input_config.concurrency); state it with --batches")
    return report.batch


def _vllm(report: ToolReport, document: dict[str, object]) -> Figures:
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
