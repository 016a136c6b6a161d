"""Reads token times of a language model's server: `vllm bench serve`, genai-perf and AIPerf, one load a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from app.campaigns.reports.figures import ToolReport, number

UNITS_MS = {"ms": 1.0, "us": 1e-3, "ns": 1e-6, "s": 1e3}
LARGEST = 1e9


@dataclass(frozen=True, slots=True)
class TokenReport:
    """Means of one load: at a rate, or at a concurrency; the other is 0."""

    ttft_ms: float
    tpot_ms: float
    input_tokens: float
    output_tokens: float
    requests: int
    seconds: float
    rate_per_second: float = 0.0
    concurrency: int = 0
    poisson: bool = False


def read_token_times(report: ToolReport) -> TokenReport:
    """Returns the figures of the file. Raises ReportRefused."""
    try:
        document = json.loads(report.text.lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise report.refused(f"it is no JSON: {error}") from None
    if isinstance(document, dict) and "mean_ttft_ms" in document:
        return _vllm(report, document)
    if isinstance(document, dict) and isinstance(document.get("time_to_first_token"), dict):
        return _genai_perf(report, document)
    raise report.refused(
        "it has no token times; allowed are the JSON of vllm bench serve --save-result, "
        "profile_export_genai_perf.json of genai-perf --streaming, and profile_export_aiperf.json of AIPerf --streaming"
    )


def _vllm(report: ToolReport, document: dict[str, Any]) -> TokenReport:
    requests = _above(report, document, "completed")
    rate = document.get("request_rate")
    open_loop = rate not in (None, "inf", float("inf"))
    if not open_loop and document.get("max_concurrency") is None:
        raise report.refused("it has neither a request_rate nor a max_concurrency; measure with one of them")
    return TokenReport(
        _above(report, document, "mean_ttft_ms"),
        _above(report, document, "mean_tpot_ms"),
        _above(report, document, "total_input_tokens") / requests,
        _above(report, document, "total_output_tokens") / requests,
        int(requests),
        _above(report, document, "duration"),
        rate_per_second=_above(report, document, "request_rate") if open_loop else 0.0,
        concurrency=0 if open_loop else int(_above(report, document, "max_concurrency")),
        poisson=open_loop,
    )


def _genai_perf(report: ToolReport, document: dict[str, Any]) -> TokenReport:
    means = {name: _mean(report, document, name) for name in (
        "time_to_first_token", "inter_token_latency", "input_sequence_length", "output_sequence_length",
        "request_throughput",
    )}  # fmt: skip
    count = document.get("request_count")
    requests = _above(report, count, "avg") if isinstance(count, dict) else means["request_throughput"]
    settings = document.get("input_config")
    settings = settings if isinstance(settings, dict) else {}
    nested = settings.get("perf_analyzer")
    stimulus = nested.get("stimulus") if isinstance(nested, dict) else None
    for where in (stimulus, settings.get("loadgen"), settings):
        if not isinstance(where, dict):
            continue
        rate, concurrency = where.get("request_rate"), where.get("concurrency")
        if rate is None and concurrency is None:
            continue
        return TokenReport(
            means["time_to_first_token"],
            means["inter_token_latency"],
            means["input_sequence_length"],
            means["output_sequence_length"],
            int(requests),
            requests / means["request_throughput"],
            rate_per_second=_above(report, where, "request_rate") if rate is not None else 0.0,
            concurrency=0 if rate is not None else int(_above(report, where, "concurrency")),
            poisson=rate is not None,
        )
    raise report.refused("it does not say its concurrency or its request_rate (input_config)")


def _mean(report: ToolReport, document: dict[str, Any], name: str) -> float:
    part = document.get(name)
    if not isinstance(part, dict) or "avg" not in part:
        raise report.refused(f"it has no {name}.avg; measure with streaming, which token times need")
    unit = part.get("unit", "ms") if name in ("time_to_first_token", "inter_token_latency") else "ms"
    if unit not in UNITS_MS:
        raise report.refused(f"{name}.unit is {str(unit)[:20]!r}; allowed: {', '.join(UNITS_MS)}")
    return _above(report, part, "avg") * UNITS_MS[unit]


def _above(report: ToolReport, where: dict[str, Any], field: str) -> float:
    found = number(report, field, where.get(field))
    if not 0 < found <= LARGEST:
        raise report.refused(f"{field} is {found:g}; allowed is a number above 0")
    return found
