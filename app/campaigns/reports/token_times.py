"""Reads token times of a language model's server: `vllm bench serve`, genai-perf and AIPerf, one load a file."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.campaigns.reports.figures import ToolReport, number
from app.campaigns.reports.load_tools import find_stated_loads, read_object, unit_ms
from app.manifests.model import Free

LARGEST = 1e9


@dataclass(frozen=True, slots=True)
class TokenReport:
    """Means of one load: at a rate for some seconds, or at a concurrency; what it has not is 0."""

    ttft_ms: float
    tpot_ms: float
    input_tokens: float
    output_tokens: float
    rate_per_second: float = 0.0
    seconds: float = 0.0
    concurrency: int = 0


def read_token_times(report: ToolReport) -> TokenReport:
    """Returns the figures of the file. Raises ReportRefused."""
    document = read_object(report)
    if "mean_ttft_ms" in document:
        return _vllm(report, document)
    if isinstance(document.get("time_to_first_token"), dict):
        return _genai_perf(report, document)
    raise report.refused(
        "it has no token times; allowed are the JSON of vllm bench serve --save-result, "
        "profile_export_genai_perf.json of genai-perf --streaming, and profile_export_aiperf.json of AIPerf --streaming"
    )


def _vllm(report: ToolReport, document: dict[str, object]) -> TokenReport:
    requests = _read_positive(report, document, "completed")
    prompts, answers = (
        _tokens(report, f"{name} of a request", _read_positive(report, document, name) / requests)
        for name in ("total_input_tokens", "total_output_tokens")
    )
    ttft_ms, tpot_ms = (_read_positive(report, document, name) for name in ("mean_ttft_ms", "mean_tpot_ms"))
    means = TokenReport(ttft_ms, tpot_ms, prompts, answers)
    if document.get("request_rate") not in (None, "inf", float("inf")):
        return _add_rate(report, means, document, _read_positive(report, document, "duration"))
    if document.get("max_concurrency") is None:
        raise report.refused("it has neither a request_rate nor a max_concurrency; measure with one of them")
    return replace(means, concurrency=_whole(report, document, "max_concurrency"))


def _genai_perf(report: ToolReport, document: dict[str, object]) -> TokenReport:
    ttft_ms, tpot_ms = (_mean_ms(report, document, name) for name in ("time_to_first_token", "inter_token_latency"))
    prompts, answers = (
        _tokens(report, f"{name}.avg", _mean(report, document, name))
        for name in ("input_sequence_length", "output_sequence_length")
    )
    means = TokenReport(ttft_ms, tpot_ms, prompts, answers)
    for place in find_stated_loads(document):
        if place.get("request_rate") is not None:
            seconds = _mean(report, document, "request_count") / _mean(report, document, "request_throughput")
            return _add_rate(report, means, place, seconds)
        if place.get("concurrency") is not None:
            return replace(means, concurrency=_whole(report, place, "concurrency"))
    raise report.refused("it does not say its concurrency or its request_rate (input_config)")


def _add_rate(report: ToolReport, means: TokenReport, place: dict[str, object], seconds: float) -> TokenReport:
    rate = _read_positive(report, place, "request_rate")
    if rate * seconds < 1:
        raise report.refused(f"request_rate {rate:g} for {seconds:g} s is not one request")
    return replace(means, rate_per_second=rate, seconds=seconds)


def _mean_ms(report: ToolReport, document: Free, name: str) -> float:
    mean = _mean(report, document, name)
    return mean * unit_ms(report, name, document[name])


def _mean(report: ToolReport, document: dict[str, object], name: str) -> float:
    statistics = document.get(name)
    if not isinstance(statistics, dict) or "avg" not in statistics:
        raise report.refused(f"it has no {name}.avg; a run with streaming states it")
    return _read_positive(report, statistics, "avg")


def _tokens(report: ToolReport, field: str, mean: float) -> float:
    if mean < 1:
        raise report.refused(f"{field} is {mean:g}; allowed is a mean of at least 1")
    return mean


def _whole(report: ToolReport, place: dict[str, object], field: str) -> int:
    found = _read_positive(report, place, field)
    if found != int(found):
        raise report.refused(f"{field} is {found:g}; allowed is a whole number above 0")
    return int(found)


def _read_positive(report: ToolReport, place: dict[str, object], field: str) -> float:
    found = number(report, field, place.get(field))
    if not 0 < found <= LARGEST:
        raise report.refused(f"{field} is {found:g}; allowed is a number above 0 and up to {LARGEST:g}")
    return found
