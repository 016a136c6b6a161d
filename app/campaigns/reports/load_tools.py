"""The common form of JSON of genai-perf, AIPerf and `vllm bench serve`: its units, and where its load stands."""

from __future__ import annotations

import json
from collections.abc import Iterator

from app.campaigns.reports.figures import ToolReport

UNITS_MS = {"ms": 1.0, "us": 1e-3, "ns": 1e-6, "s": 1e3}


def read_object(report: ToolReport) -> dict[str, object]:
    """Returns the object that a report holds, empty where it holds another value. Raises ReportRefused."""
    try:
        document = json.loads(report.text.lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise report.refused(f"it is no JSON: {error}") from None
    return document if isinstance(document, dict) else {}


def unit_ms(report: ToolReport, field: str, statistics: dict[str, object]) -> float:
    """Returns the milliseconds of the unit in which a time is stated. Raises ReportRefused."""
    unit = statistics.get("unit", "ms")
    if not isinstance(unit, str) or unit not in UNITS_MS:
        raise report.refused(f"{field}.unit is {str(unit)[:20]!r}; allowed: {', '.join(UNITS_MS)}")
    return UNITS_MS[unit]


def find_stated_loads(document: dict[str, object]) -> Iterator[dict[str, object]]:
    """Yields the places where any version of genai-perf or AIPerf writes its concurrency or its request rate."""
    settings = document.get("input_config")
    if not isinstance(settings, dict):
        return
    nested = settings.get("perf_analyzer")
    for place in (nested.get("stimulus") if isinstance(nested, dict) else None, settings.get("loadgen"), settings):
        if isinstance(place, dict):
            yield place
